"""Recurring rules over HTTP, for programs without an event loop."""
# Written by scripts/clients.py from async_recurring.py: change that one.

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Unpack

from penstock.sdk.calls import about_rule, call, page
from penstock.sdk.sync_rooms import Send

if TYPE_CHECKING:  # a client that does not ask for rules does not load them
    from penstock.model.recurrence_view import (
        Backfilled,
        Preview,
        RecurringOut,
        RuleDeleted,
        RulePut,
        Triggered,
    )
    from penstock.sdk.asked import Moment
    from penstock.sdk.recurring import RuleFields


class SyncRecurring:
    """`client.recurring` of a Client."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def put(
        self, rule_id: str, *, version: int | None = None, **fields: Unpack[RuleFields]
    ) -> RulePut:
        """Make a rule or change it; `version`: only if it has this one (VersionConflict)."""
        return self._send(about_rule("putRule", rule_id, content=fields, version=version))

    def get(self, rule_id: str) -> RecurringOut:
        """The rule, its next moments and its latest results; UnknownThing if there is none."""
        return self._send(about_rule("rule", rule_id))

    def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RecurringOut], str | None]:
        """A page by id, and the cursor of the next one (None: the last)."""
        return self._send(page("rules", cursor, limit))

    def delete(self, rule_id: str, *, version: int | None = None) -> None:
        """Delete the rule; messages that it has planted stay."""
        deleted: RuleDeleted = self._send(about_rule("dropRule", rule_id, version=version))
        del deleted

    def pause(self, rule_id: str, *, version: int | None = None) -> RecurringOut:
        """Plant nothing until it is resumed."""
        return self._send(about_rule("pauseRule", rule_id, version=version))

    def resume(self, rule_id: str, *, version: int | None = None) -> RecurringOut:
        """Plant again; moments that passed during the pause are not made up for."""
        return self._send(about_rule("resumeRule", rule_id, version=version))

    def trigger(self, rule_id: str) -> str:
        """Put one more message of the rule, due now; its id."""
        triggered: Triggered = self._send(about_rule("triggerRule", rule_id))
        return triggered.id

    def backfill(self, rule_id: str, first: Moment, last: Moment) -> int:
        """Put past moments, both ends included, that are not known; how many there were."""
        span = {"from": first, "to": last}
        filled: Backfilled = self._send(about_rule("backfillRule", rule_id, content=span))
        return filled.planted

    def preview(self, **fields: Unpack[RuleFields]) -> Preview:
        """The moments of such a rule and their description in words; nothing is stored."""
        return self._send(call("previewRule", content=fields))
