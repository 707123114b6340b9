"""Faults on the path of a message: intake, leases, sends, settling, recovery, clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from penstock.flow import deliver
from penstock.flow.breaker import Breaker
from penstock.flow.deliver import Deliver, Sent
from penstock.flow.ingest import Ingest
from penstock.flow.intake import Intake
from penstock.flow.observe import Contact
from penstock.flow.recover import Recover
from penstock.flow.release import PER_MS, SPACING_MS, Claimed, Lane, Leases, StoreAway
from penstock.flow.settle import Settler
from penstock.flow.worker import Worker
from penstock.model import lifecycle
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Claim, Receipt, Settlement
from penstock.model.state import State
from penstock.stores.memory import MemoryStore
from penstock.stores.memory import messages as memory_messages
from penstock.stores.memory import store as memory_store
from penstock.stores.sql import messages as sql_messages
from penstock.stores.sql import store as sql_store
from penstock.stores.sqlite import SqliteStore
from penstock.stores.sqlite.session import STATEMENTS
from penstock.time.clock import Clock, SystemClock
from tests.simulation.link import Line
from tests.simulation.link_store import LinkedStore
from tests.simulation.mutants import mutant, together


@mutant("no fencing", 40)
def no_fencing() -> Any:
    """Any token settles."""
    delivered = STATEMENTS["deliver"].replace("AND lease = :token", "AND :token > 0")
    return together(
        patch.object(lifecycle, "holds", lambda record, _token: record.token is not None),
        patch.dict(STATEMENTS, {"deliver": delivered}),
    )


@mutant("settle before send", 20)
def settle_before_send() -> Any:
    original = Deliver.send

    async def send(
        self: Deliver, batch: Sequence[Message], token: int, allowed: Any, holds: Any, began: int
    ) -> Sent:
        outcomes = [DELIVERED] * len(batch)
        sending = asyncio.ensure_future(original(self, batch, token, allowed, holds, began))
        sending.add_done_callback(lambda _: None)
        return Sent(self._settlements(batch, token, outcomes, allowed, began), outcomes, began)

    return patch.object(Deliver, "send", send)


@mutant("now not clamped", 20)
def not_clamped() -> Any:
    def unheld(now: int, _clock: Clock) -> int:
        return now

    return together(
        patch.object(Line, "now", lambda _self, given: given),
        patch.object(sql_store, "reached", unheld),
        patch.object(memory_store, "reached", unheld),
    )


@mutant("lost cancel mark", 250)
def lost_cancel() -> Any:
    def after(wanted: State, *, cancel_asked: bool) -> State:
        del cancel_asked
        return wanted

    return patch.object(lifecycle, "after_lease", after)


@mutant("recover without a look at the lease", 20)
def reckless_recovery() -> Any:
    ended = "SELECT token, seqs FROM leases WHERE ? > 0 ORDER BY until, token LIMIT 1"
    return patch.dict(STATEMENTS, {"ended_lease": ended})


@mutant("leases are not extended", 60)
def no_extension() -> Any:
    return patch.object(Worker, "_held", lambda _self: [])


@mutant("intake answers before the store", 40)
def answers_early() -> Any:
    original = Intake.schedule

    async def schedule(self: Intake, drafts: Any) -> Any:
        try:
            return await original(self, drafts)
        except Exception:  # noqa: BLE001 - this is the fault
            return [Receipt(draft.id or "", State.SCHEDULED, 0) for draft in drafts]

    return patch.object(Intake, "schedule", schedule)


@mutant("source done before it is kept", 200)
def done_early() -> Any:
    async def take(self: Ingest, records: Any) -> None:
        await self._source.done(records)
        await original(self, records)

    original = Ingest._take
    return patch.object(Ingest, "_take", take)


@mutant("attempt taken back on every retry", 20)
def refunded() -> Any:
    original = Deliver._failed

    def failed(self: Deliver, *args: Any) -> Settlement:
        settlement = original(self, *args)
        return Settlement(
            message=settlement.message,
            token=settlement.token,
            state=settlement.state,
            due=settlement.due,
            error=settlement.error,
            event=settlement.event,
            refund=True,
        )

    return patch.object(Deliver, "_failed", failed)


@mutant("a sink that asks for time gets none", 200)
def impatient() -> Any:
    def wait(self: Deliver, _outcome: Any, failures: int) -> int:
        return self._route.backoff.wait(failures, self._chance)

    return patch.object(Deliver, "_wait", wait)


@mutant("claims beyond the capacity", 20)
def greedy() -> Any:
    async def take(self: Lane, _number: int, now: int) -> Any:
        return await original(self, 10, now)

    original = Lane._take
    return patch.object(Lane, "_take", take)


@mutant("sleeps on when the clock is set back", 60)
def oversleeps() -> Any:
    async def sleep_until(self: SystemClock, when: int) -> None:
        while (wait := when - self.now()) > 0:  # noqa: ASYNC110 - as it was
            await asyncio.sleep(min(wait, 1000) / 1000)

    return patch.object(SystemClock, "sleep_until", sleep_until)


@mutant("waits for a moment that a clock set back has put far away", 200)
def far_away() -> Any:
    def worth_at(self: Lane, _now: int | None = None) -> int:
        spacing = min(len(self._last.claim.messages) // PER_MS, SPACING_MS)
        return self._last.at + max(spacing, self._spacing)

    return patch.object(Lane, "_worth_at", worth_at)


@mutant("asks on and on when its clock is ahead", 60)
def hasty() -> Any:
    def next_look(self: Lane, claimed: Claimed, _now: int | None) -> int:
        look = self._clock.now() + self._poll
        next_due = claimed.claim.next_due
        return look if next_due is None else min(look, next_due)

    return together(
        patch.object(Lane, "_when_paced", lambda _self, paced: paced.again_at),
        patch.object(Lane, "_next_look", next_look),
    )


@mutant("nobody recovers", 20)
def no_recovery() -> Any:
    async def step(_self: Recover) -> None:
        """What is lost stays lost."""

    return patch.object(Recover, "step", step)


@mutant("one sender for all routes", 100)
def one_sender() -> Any:
    """A sink that does not answer keeps everybody waiting."""
    original = Deliver.send
    turn = asyncio.Lock()

    async def send(self: Deliver, *args: Any) -> Sent:
        async with turn:
            return await original(self, *args)

    return patch.object(Deliver, "send", send)


@mutant("keys are not kept apart", 40)
def any_key() -> Any:
    """A route with a promise for each key claims like any other."""

    async def take(self: Lane, number: int, now: int) -> Claim:
        return await self._store.claim(self.route.name, number, self._lease, now)

    return patch.object(Lane, "_take", take)


@mutant("a retry does not hold back its key", 250)
def overtaken() -> Any:
    """The store's rule, and the model's: both would agree on it."""
    return patch.object(memory_messages, "has_begun", lambda _message: False)


@mutant("acts on an answer that came after its lease", 350)
def too_late() -> Any:
    return patch.object(Leases, "hold", lambda _self, _token, _now: True)


@mutant("forgets by the worker's clock", 250)
def forgets_early() -> Any:
    """As Redis once did: a worker that is an hour ahead purges what was settled just now."""

    async def purge(self: LinkedStore, now: int, limit: int) -> int:
        return await self._line.call(
            lambda: self._to.purge(now, limit), lambda got: self._ledger.purge(now, limit, got)
        )

    async def purge_sqlite(self: SqliteStore, now: int, limit: int) -> int:
        how = limit, self._retention, self._retention_count
        return await self._group.submit(lambda tx: sql_messages.purge(tx, now, *how))

    async def purge_memory(self: MemoryStore, now: int, limit: int) -> int:
        return self.book.purge(now, limit)

    return together(
        patch.object(LinkedStore, "purge", purge),
        patch.object(SqliteStore, "purge", purge_sqlite),
        patch.object(MemoryStore, "purge", purge_memory),
    )


@mutant("a probe that never ends", 200)
def endless_probe() -> Any:
    """A probe that found nobody was the last one: the route stays closed for ever."""
    return patch.object(Breaker, "not_sent", lambda _self, _probe: None)


@mutant("an interrupted send called delivered", 200)
def interrupted() -> Any:
    return patch.object(deliver, "_INTERRUPTED", DELIVERED)


@mutant("only the last poison record buried", 150)
def last_buried() -> Any:
    async def bury(self: Ingest, poison: Any, held: Any) -> None:
        await original(self, poison[-1:], held)

    original = Ingest._bury
    return patch.object(Ingest, "_bury", bury)


@mutant("one capacity for all routes", 400)
def one_capacity() -> Any:
    """What a sink that never answers has taken is taken from every route, for ever."""
    taken: dict[object, int] = {}
    lanes: dict[object, dict[Lane, None]] = {}

    def get(self: Lane) -> int:
        return taken.get(getattr(self, "_settler", None), 0)

    def put(self: Lane, number: int) -> None:
        if not hasattr(self, "_settler"):
            return  # it is being made
        freed = number < taken.get(self._settler, 0)
        taken[self._settler] = number
        others = lanes.setdefault(self._settler, {})
        others[self] = None
        for lane in others if freed else ():
            lane._alarm.ring()

    return patch.object(Lane, "in_flight", property(get, put), create=True)


@mutant("claims of a worker wait for each other", 150)
def one_claim() -> Any:
    """Until they are answered: a part of the store that is away for ever stops all routes."""
    turns: dict[object, asyncio.Lock] = {}
    original = Lane._claim

    async def claim(self: Lane, wanted: int) -> Any:
        async with turns.setdefault(self._settler, asyncio.Lock()):
            while isinstance(got := await original(self, wanted), StoreAway):
                if self._stopping:
                    break
                await self._clock.sleep_until(self._clock.now() + 200)
            return got

    return patch.object(Lane, "_claim", claim)


@mutant("one process recovers for all", 250)
def one_recovers() -> Any:
    """The one with the highest name, whether it reaches the store or not."""
    known: dict[int, str] = {}
    original = Recover._reap

    async def reap(self: Recover, now: int) -> Any:
        line = self._store._line  # type: ignore[attr-defined]  # a LinkedStore
        name = line.who.partition(".")[0]
        known[id(line.books)] = max(name, known.get(id(line.books), ""))
        return await original(self, now) if name == known[id(line.books)] else []

    return patch.object(Recover, "_reap", reap)


@mutant("claims and extends without ever an answer", 100, first=400)
def deaf() -> Any:
    """A process whose requests arrive and whose answers are lost keeps its messages for ever."""

    async def ensure(self: Contact) -> int:
        """Go on, whoever hears."""
        return self._clock.now()

    return patch.object(Contact, "ensure", ensure)


@mutant("settlements wait for each other", 200)
def one_settlement() -> Any:
    """Until they are answered: a part of the store that is away for ever keeps all routes full."""
    original = Settler._settle

    async def settle(self: Settler, batch: Any, _now: int) -> Any:
        while True:
            try:
                return await original(self, batch, self._clock.now())
            except StoreUnavailable:
                if self._gives_up():
                    return [None] * len(batch)
                await self._store.clock.sleep_until(self._store.clock.now() + 200)

    return patch.object(Settler, "_settle", settle)


@mutant("a put that fails is tried again as a whole", 100)
def never_apart() -> Any:
    """As it was: a record that no store can take stops its source for ever."""

    async def put_apart(_self: Intake, _messages: Any, _now: int, failed: Exception) -> Any:
        raise StoreUnavailable("as it was") from failed

    return patch.object(Intake, "_put_apart", put_apart)
