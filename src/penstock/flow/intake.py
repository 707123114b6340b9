"""INTAKE: check, identify, put. When it has answered, the message is in the store."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from penstock.flow.coalesce import Coalescer, Linger, Turns
from penstock.flow.observe import Observer
from penstock.model.draft import Draft, check_draft, due_from
from penstock.model.errors import (
    InvalidMessage,
    NotStored,
    PenstockError,
    PutRefused,
    StoreUnavailable,
    UnknownRoute,
)
from penstock.model.fit import check_whole_size, cut_to, size_beside, stored_size
from penstock.model.identity import IdMaker
from penstock.model.isolation import isolate
from penstock.model.message import MAX_PAYLOAD, NewMessage
from penstock.model.outcome import Amendment, Receipt
from penstock.model.patch import Patch, check_patch
from penstock.model.route import is_route_name
from penstock.model.times import format_duration
from penstock.ports.store import MessageStore
from penstock.time.chance import given_or_fresh

log = logging.getLogger("penstock.intake")

Outcome: TypeAlias = Receipt | PenstockError
Put: TypeAlias = Callable[[Sequence[NewMessage], int], Awaitable[list[Receipt]]]

UNEXPECTED = "the message could not be stored; see the server's log"

GROUP = 500
"""Single puts that share one store call at most."""
GATHER_TURNS = 9
"""Turns of the event loop that a growing group waits for more at most."""
GROUPS_IN_FLIGHT = 4
"""Store calls for single puts under way at once; a store that is inline never has two."""


class Intake:
    """Accepts every new message, whether it comes from HTTP, gRPC, SDK, CLI or a source."""

    def __init__(
        self,
        store: MessageStore,
        observer: Observer,
        *,
        routes: AbstractSet[str] | None = None,
        max_payload: int = MAX_PAYLOAD,
        max_message: int | None = None,
        min_delay: int | None = None,
        max_delay: int | None = None,
        ids: IdMaker | None = None,
        put: Put | None = None,
    ) -> None:
        """`max_message`: bytes of a whole message that the store takes; None: no limit.

        `put` replaces the store's own put where messages take another way into the store.
        """
        self._store = store
        self._clock = store.clock
        self._put = put
        self._observer = observer
        self._routes = routes
        self._max_payload = max_payload
        self._max_message = max_message
        self._min_delay = min_delay
        self._max_delay = max_delay
        self._ids = ids if ids is not None else IdMaker(given_or_fresh(None))
        self._coalescers: list[Coalescer[Draft, Receipt]] = []
        singles = self.singles(Turns(GATHER_TURNS, GROUP))
        self.submit = singles.submit
        """Put one message and call back once it is durable or refused: no task, no future."""
        self.schedule_one = singles.ask_alone
        """Put one message; those of many callers at once share a transaction."""

    def singles(self, linger: Linger) -> Coalescer[Draft, Receipt]:
        """A coalescer for messages that arrive one by one and then share calls of the store."""
        self._coalescers.append(
            Coalescer(
                self._schedule_singles,
                max_items=GROUP,
                max_calls=GROUPS_IN_FLIGHT,
                linger=linger,
            )
        )
        return self._coalescers[-1]

    async def drain(self) -> None:
        """Wait until every single message has been answered."""
        for coalescer in self._coalescers:
            await coalescer.drain()

    async def schedule(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Put a batch: one outcome each, in order; the bad ones do not hold back the good.

        Raises StoreUnavailable when nothing could be stored.
        """
        tracer = self._observer.tracer
        if tracer is None or not tracer.is_on:
            return await self._schedule(drafts)
        with tracer.intake(drafts):
            return await self._schedule(drafts)

    async def _schedule(self, drafts: Sequence[Draft]) -> list[Outcome]:
        now = self._clock.now()
        good: list[NewMessage] = []
        bad: list[tuple[int, PenstockError]] = []
        for draft in drafts:
            try:
                good.append(self._check(draft, now))
            except PenstockError as exc:
                bad.append((len(good) + len(bad), exc))
        outcomes = await self.put(good, now)
        self._observer.count("rejected", "", len(bad))
        for place, refusal in bad:
            outcomes.insert(place, refusal)
        return outcomes

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Outcome]:
        """Put messages that are checked: one outcome each, in order.

        Raises StoreUnavailable when nothing could be stored.
        """
        if not messages:
            return []
        outcomes: list[Outcome] = []
        with self._observer.asking("put"):
            try:
                outcomes += await (self._put or self._store.put)(messages, now)
            except StoreUnavailable:
                raise
            except Exception as exc:  # noqa: BLE001 - it may be one message's
                outcomes = await self._put_apart(messages, now, exc)
        self._count(messages, outcomes)
        return outcomes

    async def _put_apart(
        self, messages: Sequence[NewMessage], now: int, failed: Exception
    ) -> list[Outcome]:
        """Repeat a failed put in halves: the messages at fault get their error, all others a
        receipt.

        Raises StoreUnavailable when nothing could be stored for a reason that is no message's.
        """

        async def put(part: Sequence[NewMessage]) -> Sequence[Outcome]:
            try:
                return await (self._put or self._store.put)(part, now)
            except PutRefused as exc:
                return outcomes_of(exc)

        if isinstance(failed, PutRefused):
            return outcomes_of(failed)
        outcomes = await isolate(
            messages, put, _as_error, shared=(StoreUnavailable,), failed=failed
        )
        if all(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
            for outcome in outcomes:
                if isinstance(outcome, StoreUnavailable) and not isinstance(outcome, NotStored):
                    raise outcome  # the store has become unavailable: no other message is at fault
            log.error(
                "%d messages could not be stored, their callers get an error",
                len(messages),
                exc_info=failed,
            )
            raise NotStored(UNEXPECTED) from failed
        log.warning(
            "storing %d messages at once failed (%s: %s); one by one, %d of them cannot be stored",
            len(messages),
            type(failed).__name__,
            failed,
            sum(isinstance(outcome, PenstockError) for outcome in outcomes),
        )
        return outcomes

    async def keep_dead(self, messages: Sequence[NewMessage]) -> list[Outcome]:
        """Store messages that arrive `dead`, for inspection: one outcome each, as `schedule`.

        A message that is too large is cut, and its error says so.
        """
        now = self._clock.now()
        messages = [cut_to(one, self._max_payload, self._max_message) for one in messages]
        try:
            return list(await self._store.put(messages, now))
        except StoreUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001 - as in `schedule`
            return await self._put_apart(messages, now, exc)

    async def _schedule_singles(self, drafts: Sequence[Draft]) -> list[Outcome]:
        try:
            return await self.schedule(drafts)
        except PenstockError:
            raise
        except Exception as exc:
            log.exception(
                "%d messages could not be stored, their callers get an error", len(drafts)
            )
            raise NotStored(UNEXPECTED) from exc

    def change(self, message_id: str, patch: Patch, version: int | None = None) -> Amendment:
        """The amendment a patch asks for, under the same limits as a new message."""
        now = self._clock.now()
        amendment = check_patch(patch, message_id, version, now, max_payload=self._max_payload)
        if self._max_message is not None:
            size = size_beside(amendment.headers, amendment.labels) + len(amendment.payload or b"")
            check_whole_size(size, self._max_message)
        if amendment.due is not None:
            self._check_horizon(amendment.due - now, "at" if patch.delay is None else "delay")
        return amendment

    def due(self, at: str | None, delay: float | str | None) -> int:
        """The requested due time, under the same limits as a new message's."""
        now = self._clock.now()
        if at is None and delay is None:
            raise InvalidMessage("at", "say when: at or delay")
        due = due_from(at, delay, now)
        self._check_horizon(due - now, "at" if delay is None else "delay")
        return due

    def checked(self, draft: Draft) -> NewMessage:
        """The message that a draft asks for, if it may be stored."""
        return self._check(draft, self._clock.now())

    def _check(self, draft: Draft, now: int) -> NewMessage:
        routes = self._routes
        if routes is None:
            if not is_route_name(draft.route):
                raise InvalidMessage("route", "must be 1-100 letters, digits, _ . or -")
        elif draft.route not in routes:
            raise UnknownRoute(draft.route, tuple(routes))
        message = check_draft(draft, now, self._ids, max_payload=self._max_payload)
        if self._max_message is not None:
            check_whole_size(stored_size(message), self._max_message)
        if self._min_delay is not None or self._max_delay is not None:
            self._check_horizon(message.due - now, "at" if draft.delay is None else "delay")
        return message

    def _check_horizon(self, ahead: int, field: str) -> None:
        if self._min_delay is not None and ahead < self._min_delay:
            raise InvalidMessage(
                field, f"must be at least {format_duration(self._min_delay)} ahead (min_delay)"
            )
        if self._max_delay is not None and ahead > self._max_delay:
            raise InvalidMessage(
                field, f"must be at most {format_duration(self._max_delay)} ahead (max_delay)"
            )

    def _count(self, messages: Sequence[NewMessage], outcomes: Sequence[Outcome]) -> None:
        """Count the outcomes; a known id is not accepted again, a blocked message is settled."""
        accepted: dict[str, int] = {}
        blocked: dict[str, int] = {}
        rejected = 0
        for message, outcome in zip(messages, outcomes, strict=True):
            if not isinstance(outcome, Receipt):
                rejected += 1
            elif not outcome.duplicate:
                accepted[message.route] = accepted.get(message.route, 0) + 1
                if message.blocked is not None:
                    blocked[message.route] = blocked.get(message.route, 0) + 1
        for route, number in accepted.items():
            self._observer.count("accepted", route, number)
        for route, number in blocked.items():
            self._observer.count("blocked", route, number)
        self._observer.count("rejected", "", rejected)


def outcomes_of(refused: PutRefused) -> list[Outcome]:
    """The outcome of each message of a put that the store refused in part."""
    return [one for one in refused.outcomes if isinstance(one, Receipt | PenstockError)]


def _as_error(exc: Exception) -> PenstockError:
    return exc if isinstance(exc, PenstockError) else NotStored(UNEXPECTED)
