"""One log line for every change made with a token: token, verb, object and count.

Changes that people and programs make one by one have a line each. Scheduled messages and visitors
that come and go are counted, and logged once per second for each token, verb and object: a line for
each of 50,000 messages a second would cost more than the messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.api.grants import Grant
from penstock.flow.intake import Outcome
from penstock.model.draft import Draft
from penstock.model.outcome import Receipt
from penstock.model.query import Filter
from penstock.model.times import format_moment

log = logging.getLogger("penstock.audit")
log.setLevel(logging.INFO)  # independent of log.level: these lines are the record

PERIOD = 1.0
"""Seconds between two audit lines of the same token, verb and object."""


class Audit:
    """Writes the audit lines of one API. Callers without a token are not recorded."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def record(self, grant: Grant, verb: str, target: str, count: int = 1) -> None:
        """Write one line now."""
        if grant.name:
            _tell(grant.name, verb, target, count)

    def count(self, grant: Grant, verb: str, target: str, number: int = 1) -> None:
        """Add to the line that is written at the end of this second."""
        if not grant.name or not number:
            return
        change = grant.name, verb, target
        self._counts[change] = self._counts.get(change, 0) + number
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD, self.flush)

    def scheduled(self, grant: Grant, drafts: Iterable[Draft], outcomes: Sequence[Outcome]) -> None:
        """Count the accepted messages of a batch, by route."""
        if grant.name:
            accepted = Counter(
                draft.route
                for draft, outcome in zip(drafts, outcomes, strict=True)
                if isinstance(outcome, Receipt)
            )
            for route, number in accepted.items():
                self.count(grant, "schedule", route, number)

    def flush(self) -> None:
        """Write a line for each count and reset the counts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        for (who, verb, target), number in counts.items():
            _tell(who, verb, target, number)


def record_unsure(grant: Grant, target: str) -> None:
    """Log a change that the store did not answer: it may be done, in part or whole."""
    if grant.name:
        fields = {"who": grant.name, "verb": "unsure", "object": target, "count": 0}
        log.info("audit: %s %s: not answered by the store", grant.name, target, extra=fields)


def filter_text(where: Filter) -> str:
    """A filter as the object of an audit line."""
    fields = {
        "state": where.state,
        "route": where.route,
        "key": where.key,
        "due_from": None if where.due_from is None else format_moment(where.due_from),
        "due_to": None if where.due_to is None else format_moment(where.due_to),
        "error": where.error,
    }
    return " ".join(f"{name}={value}" for name, value in fields.items() if value) or "everything"


def _tell(who: str, verb: str, target: str, count: int) -> None:
    fields = {"who": who, "verb": verb, "object": target, "count": count}
    log.info("audit: %s %s %s (%d)", who, verb, target, count, extra=fields)
