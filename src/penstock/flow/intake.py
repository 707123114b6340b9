"""INTAKE: check, identify, put. When it has answered, the message is in the store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import compress
from typing import Protocol, TypeAlias

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
Done: TypeAlias = Callable[[Outcome], None]
Put: TypeAlias = Callable[[Sequence[NewMessage], int], Awaitable[list[Receipt]]]

UNEXPECTED = "the message could not be stored; see the server's log"

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
        max_message: int | None = None,
        min_delay: int | None = None,
        max_delay: int | None = None,
        ids: IdMaker | None = None,
        put: Put | None = None,
    ) -> None:
        """`max_message`: bytes of a whole message that the store takes; None: any that pass.

        `put` stands in for the store's own, where messages take another way there.
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
        refused = 0
        if good:
            with self._observer.asking("put"):
                try:
                    outcomes += await (self._put or self._store.put)(good, now)
                except StoreUnavailable:
                    raise
                except Exception as exc:  # noqa: BLE001 - it may be one message's
                    outcomes = await self._put_apart(good, now, exc)
                    kept = [isinstance(outcome, Receipt) for outcome in outcomes]
                    good, refused = list(compress(good, kept)), kept.count(False)
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        self._count(good, receipts, len(bad) + refused)
        for place, refusal in bad:
            outcomes.insert(place, refusal)
        return outcomes

    async def _put_apart(
        self, messages: Sequence[NewMessage], now: int, failed: Exception
    ) -> list[Outcome]:
        """A put that failed, again in halves: those to blame get their error, all others a receipt.

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
                    raise outcome  # the store went away meanwhile: nobody else is to blame
            log.error("%d messages could not be stored", len(messages), exc_info=failed)
            raise NotStored(UNEXPECTED) from failed
        log.warning(
            "a put of %d messages failed (%s: %s); %d of them cannot be stored",
            len(messages),
            type(failed).__name__,
            failed,
            sum(isinstance(outcome, PenstockError) for outcome in outcomes),
        )
        return outcomes

    async def keep_dead(self, messages: Sequence[NewMessage]) -> list[Outcome]:
        """Keep messages that come `dead`, for inspection: one outcome each, as `schedule`.

        One that is too large is cut, and its error says so.
        """
        now = self._clock.now()
        messages = [cut_to(one, self._max_payload, self._max_message) for one in messages]
        try:
            return list(await self._store.put(messages, now))
        except StoreUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001 - as in `schedule`
            return await self._put_apart(messages, now, exc)

    @property
    def _nobody_else(self) -> bool:
        return self._lonely and not (self._alone or self._group or self._groups)

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
        except PutRefused as exc:
            observer.count("rejected", "")
            (refusal,) = outcomes_of(exc)
            raise refusal if isinstance(refusal, PenstockError) else exc from exc
        if receipt.duplicate or message.blocked is not None:
            observer.answered("put", began)
            self._count([message], [receipt], 0)
        else:
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
            failed = NotStored(UNEXPECTED)
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
        if self._max_message is not None:
            size = size_beside(amendment.headers, amendment.labels) + len(amendment.payload or b"")
            check_whole_size(size, self._max_message)
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

    def _count(
        self, good: Sequence[NewMessage], receipts: Sequence[Receipt], rejected: int
    ) -> None:
        """An id that was known is not accepted again; what came blocked was settled by its put."""
        fresh = [
            message
            for message, receipt in zip(good, receipts, strict=True)
            if not receipt.duplicate
        ]
        routes = [message.route for message in fresh]
        alike = len(set(routes)) == 1  # as mostly
        for route, number in [(routes[0], len(routes))] if alike else Counter(routes).items():
            self._observer.count("accepted", route, number)
        blocked = Counter(message.route for message in fresh if message.blocked is not None)
        for route, number in blocked.items():
            self._observer.count("blocked", route, number)
        self._observer.count("rejected", "", rejected)


def outcomes_of(refused: PutRefused) -> list[Outcome]:
    """What a store said of each message of a put that it did not keep whole."""
    return [one for one in refused.outcomes if isinstance(one, Receipt | PenstockError)]


def _as_error(exc: Exception) -> PenstockError:
    return exc if isinstance(exc, PenstockError) else NotStored(UNEXPECTED)


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
            raise NotStored(UNEXPECTED) from exc
