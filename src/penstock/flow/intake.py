"""INTAKE: check, identify, put. When it has answered, the message is in the store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from penstock.flow.observe import Observer
from penstock.model.draft import Draft, check_draft, due_from
from penstock.model.errors import InvalidMessage, PenstockError, StoreUnavailable, UnknownRoute
from penstock.model.identity import IdMaker
from penstock.model.message import DEFAULT_ROUTE, MAX_PAYLOAD, NewMessage
from penstock.model.outcome import Amendment, Receipt
from penstock.model.patch import Patch, check_patch
from penstock.model.route import is_route_name
from penstock.model.times import format_duration
from penstock.ports.store import MessageStore, PlainPuts

log = logging.getLogger("penstock.intake")

Outcome: TypeAlias = Receipt | PenstockError
Done: TypeAlias = Callable[[Outcome], None]
Put: TypeAlias = Callable[[Sequence[NewMessage], int], Awaitable[list[Receipt]]]

UNEXPECTED = "the message could not be stored; see the server's log"

LOOK_MS = 50
"""Plain messages may go untraced for so long after tracing was set up."""
GROUP = 500
"""Single puts that share one store call at most."""
GATHER_TURNS = 8
"""Turns of the event loop, some microseconds each, that a growing group waits for more at most."""
GROUPS_IN_FLIGHT = 4
"""Store calls for single puts under way at once; a store that is inline never has two."""


class Way(Protocol):
    """Something that takes single puts on their way to the store."""

    def submit(self, draft: Draft, done: Done) -> None: ...

    def withdraw(self, done: Done) -> None: ...


async def schedule_through(way: Way, draft: Draft) -> Receipt:
    """Put one message that way; a caller that leaves takes it back if it has not begun."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome) -> None:
        if not future.done():  # the caller may have gone
            future.set_result(outcome)

    way.submit(draft, done)
    try:
        outcome = await future
    except asyncio.CancelledError:
        way.withdraw(done)
        raise
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


class Intake:
    """The one way in, whoever calls: HTTP, gRPC, SDK, CLI or a source."""

    def __init__(
        self,
        store: MessageStore,
        observer: Observer,
        *,
        routes: frozenset[str] | None = None,
        max_payload: int = MAX_PAYLOAD,
        min_delay: int | None = None,
        max_delay: int | None = None,
        ids: IdMaker | None = None,
        put: Put | None = None,
    ) -> None:
        """`put` stands in for the store's own, where messages take another way there."""
        self._store = store
        self._clock = store.clock
        self._put = put
        self._observer = observer
        self._routes = routes
        self._max_payload = max_payload
        self._min_delay = min_delay
        self._max_delay = max_delay
        self._ids = ids if ids is not None else IdMaker()
        self._put_plain = None
        is_open = routes is None or DEFAULT_ROUTE in routes
        is_limited = min_delay is not None or max_delay is not None
        if is_open and not is_limited and put is None and isinstance(store, PlainPuts):
            self._put_plain = store.put_plain
        self._is_traced = False
        self._look_at = 0
        """When to look for that again: asking for every message would be felt."""
        self._group: list[tuple[Draft, Done]] = []
        self._flush_due = False
        self._seen = 0
        """How large the group was a turn of the loop ago."""
        self._turns = 0
        self._lonely = True
        """The last put had nobody beside it."""
        self._alone = False
        """A message is being put without a group, or was in this turn of the loop …"""
        self._same_turn = False
        """… which is still the turn it began in."""
        self._groups = 0
        """Whose outcome is not known yet."""
        self._flushing: set[asyncio.Task[None]] = set()

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
        outcomes: list[Outcome] = []
        if good:
            with self._observer.asking("put"):
                outcomes += await (self._put or self._store.put)(good, now)
        self._count(good, len(bad))
        for place, refusal in bad:
            outcomes.insert(place, refusal)
        return outcomes

    @property
    def is_idle(self) -> bool:
        """A plain message may take the shortest way: nobody else is under way, or was of late."""
        return self._put_plain is not None and self._nobody_else

    @property
    def _nobody_else(self) -> bool:
        return self._lonely and not (self._alone or self._group or self._groups)

    async def schedule_plain(self, payload: bytes, at: int) -> Receipt | None:
        """Put one message of the default route with nothing but JSON and a moment, while idle.

        None: nothing has happened, and it takes the way of all others.
        """
        put, observer = self._put_plain, self._observer
        now = self._clock.now()
        if now >= self._look_at:
            self._look_for_tracing(now)
        if put is None or self._is_traced or len(payload) > self._max_payload:
            return None
        began = observer.timer()
        with _Alone(self):
            try:
                receipt = await put(DEFAULT_ROUTE, self._ids.make(now), payload, max(now, at), now)
            except StoreUnavailable as exc:
                observer.unanswered("put", began, exc)
                raise
        if receipt is not None:
            observer.accepted_one(DEFAULT_ROUTE, began)
        return receipt

    def _look_for_tracing(self, now: int) -> None:
        tracer = self._observer.tracer
        self._is_traced = tracer is not None and tracer.is_on
        self._look_at = now + LOOK_MS

    async def schedule_one(self, draft: Draft) -> Receipt:
        """Put one message; those of many callers at once share a transaction.

        If nobody has put anything beside others of late, it goes without group, task or hand-over.
        Whoever comes before it is done, or in the same turn of the loop, begins a group.
        """
        if not self._nobody_else:
            return await schedule_through(self, draft)
        self._same_turn = True
        asyncio.get_running_loop().call_soon(self._turned)
        with _Alone(self):
            receipt = await self._put_one(draft)
            if self._same_turn:  # a store that is inline; others must have their turn
                await asyncio.sleep(0)
        return receipt

    def begin_alone(self) -> None:
        self._alone = True

    def end_alone(self) -> None:
        """Those who came meanwhile may go."""
        self._alone = False
        if self._group:
            self._flush_rest()

    def _turned(self) -> None:
        self._same_turn = False

    async def _put_one(self, draft: Draft) -> Receipt:
        """As `schedule` of one, without what many need."""
        observer = self._observer
        if observer.tracer is not None and observer.tracer.is_on:
            (outcome,) = await self.schedule([draft])
            if isinstance(outcome, PenstockError):
                raise outcome
            return outcome
        now = self._clock.now()
        try:
            message = self._check(draft, now)
        except PenstockError:
            observer.count("rejected", "")
            raise
        began = observer.timer()
        try:
            (receipt,) = await (self._put or self._store.put)([message], now)
        except StoreUnavailable as exc:
            observer.unanswered("put", began, exc)
            raise
        observer.accepted_one(message.route, began)
        return receipt

    def submit(self, draft: Draft, done: Done) -> None:
        """Put one message and call back once it is durable or refused: no task, no future."""
        self._group.append((draft, done))
        if not self._flush_due:
            self._flush_soon()

    def withdraw(self, done: Done) -> None:
        """Nobody waits for it any more (a deadline, a client that left): not put if not begun."""
        self._group = [entry for entry in self._group if entry[1] is not done]

    def _flush_soon(self) -> None:
        if len(self._flushing) + self._alone < GROUPS_IN_FLIGHT:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        size = len(self._group)
        if self._seen < size < GROUP and self._turns < GATHER_TURNS:
            # Callers just answered are about to ask again: while more comes with every turn of
            # the loop, wait for it, or they fall into parties that take turns, each transaction
            # a third as full as it could be.
            self._seen = size
            self._turns += 1
            asyncio.get_running_loop().call_soon(self._flush)
            return
        self._seen = self._turns = 0
        self._flush_due = False
        group, self._group = self._group[:GROUP], self._group[GROUP:]
        if group:
            self._lonely = len(group) == 1
            self._groups += 1
            task = asyncio.get_running_loop().create_task(self._put_group(group))
            self._flushing.add(task)
            task.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        self._flushing.discard(task)
        self._flush_rest()

    def _flush_rest(self) -> None:
        """A store call has ended: those who came meanwhile may go."""
        if self._group and not self._flush_due:
            self._flush_soon()

    async def _put_group(self, group: list[tuple[Draft, Done]]) -> None:
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self.schedule([draft for draft, _ in group])
        except PenstockError as exc:
            outcomes = [exc] * len(group)
        except BaseException:
            # Whatever went wrong, nobody may wait for ever; the fault itself still surfaces.
            failed = StoreUnavailable(UNEXPECTED)
            for _, done in group:
                done(failed)
            raise
        finally:
            self._groups -= 1
        for (_, done), outcome in zip(group, outcomes, strict=True):
            done(outcome)

    async def drain(self) -> None:
        """Wait until every submitted message has been answered."""
        clock = self._clock
        while self._group or self._flushing or self._alone:
            await asyncio.gather(*self._flushing)
            await (clock.sleep_until(clock.now() + 1) if self._alone else asyncio.sleep(0))

    def change(self, message_id: str, patch: Patch, version: int | None = None) -> Amendment:
        """The amendment a patch asks for, under the same limits as a new message."""
        now = self._clock.now()
        amendment = check_patch(patch, message_id, version, now, max_payload=self._max_payload)
        if amendment.due is not None:
            self._check_horizon(amendment.due - now, "at" if patch.delay is None else "delay")
        return amendment

    def due(self, at: str | None, delay: float | str | None) -> int:
        """The moment that is asked for, under the same limits as a new message's."""
        now = self._clock.now()
        if at is None and delay is None:
            raise InvalidMessage("at", "say when: at or delay")
        due = due_from(at, delay, now)
        self._check_horizon(due - now, "at" if delay is None else "delay")
        return due

    def _check(self, draft: Draft, now: int) -> NewMessage:
        routes = self._routes
        if routes is None:
            if not is_route_name(draft.route):
                raise InvalidMessage("route", "must be 1-100 letters, digits, _ . or -")
        elif draft.route not in routes:
            raise UnknownRoute(draft.route, tuple(routes))
        message = check_draft(draft, now, self._ids, max_payload=self._max_payload)
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

    def _count(self, good: list[NewMessage], rejected: int) -> None:
        routes = [message.route for message in good]
        alike = len(set(routes)) == 1  # as mostly
        for route, number in [(routes[0], len(routes))] if alike else Counter(routes).items():
            self._observer.count("accepted", route, number)
        self._observer.count("rejected", "", rejected)


class _Alone:
    """One message on its way by itself; a fault that nobody expects is told as everywhere."""

    __slots__ = ("_intake",)

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def __enter__(self) -> None:
        self._intake.begin_alone()

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        self._intake.end_alone()
        if isinstance(exc, Exception) and not isinstance(exc, PenstockError):
            log.error("a message could not be stored", exc_info=exc)
            raise StoreUnavailable(UNEXPECTED) from exc
