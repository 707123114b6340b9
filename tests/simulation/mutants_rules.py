"""Faults in policies and in waiting rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from penstock.contrib.dispatcher.dispatch import Dispatcher
from penstock.flow import conclude, settle
from penstock.flow.decide import Decide, Ruling
from penstock.flow.policies import Policies
from penstock.limits import engine
from penstock.limits.pace import Rate
from penstock.model import room_steps
from penstock.model.decision import Conclusion, End
from penstock.model.outcome import Claim, Retry
from penstock.model.room_steps import FIRST_NUMBER, RoomRecord, RoomStep
from penstock.model.ticket import Dispatch, Entry, Ticket, TicketState
from penstock.model.verdict import Verdict
from penstock.rooms.wait import Place, Wait, unknown_room
from tests.simulation.mutants import mutant


@mutant("cap counted on refusal", 60)
def counted_on_refusal() -> Any:
    original = engine.decide

    def decide(rules: Any, subject: Any, now: int, hold: int, books: Any) -> Any:
        decision = original(rules, subject, now, hold, books)
        if decision.verdict is not Verdict.ALLOW:
            for cap in rules.plan(subject.route, subject.labels).all_caps():
                counter = books.open_counter(cap, subject.key)
                cap.limit.count(counter, f"{subject.id} at {now}", now)
        return decision

    return patch.object(engine, "decide", decide)


@mutant("a pace that does not move on", 60)
def unpaced() -> Any:
    """In the arithmetic itself, of which every store's answer is made."""
    return patch.object(Rate, "go", lambda *_: None)


@mutant("sent whatever was decided", 40)
def undecided() -> Any:
    original = Decide.decide

    async def decide(self: Decide, claim: Claim, now: int) -> Ruling:
        ready, refused, allowed, _ = await original(self, claim, now)
        return Ruling([*ready, *(one.message for one in refused)], [], allowed)

    return patch.object(Decide, "decide", decide)


@mutant("what may have arrived gives its place back", 1, first=5_000_183)
def not_counted() -> Any:
    """A dead message's last attempt got no answer: it may have arrived, and counts in no cap."""
    return patch.object(Retry, "may_have_arrived", property(lambda _self: False))


@mutant("policies are never read again", 200)
def read_once() -> Any:
    """Whoever started before the first policy was put never hears of it."""

    async def run(self: Policies) -> None:
        await self.refresh()

    return patch.object(Policies, "run", run)


@mutant("reservations of retries are given back", 400)
def given_back() -> Any:
    """What may have arrived is tried again later, and holds no place meanwhile."""

    def unsent(settlements: Any, states: Any, hold: int) -> list[Conclusion]:
        return [
            Conclusion(one.subject, End.RELEASE) if one.end is End.KEEP else one
            for one in original(settlements, states, hold)
        ]

    original = conclude.unsent
    return patch.object(settle, "unsent", unsent)


@mutant("heartbeats do not reach the store", 150)
def unheard() -> Any:
    async def heartbeat(self: Wait, room: str, user: str) -> Place:
        return await self.look(room, user, alive=False)

    return patch.object(Wait, "heartbeat", heartbeat)


@mutant("looks are no sign of life", 60)
def unseen() -> Any:
    async def look(self: Wait, room: str, users: Sequence[str]) -> list[Place | None]:
        looked = await self._store.look(room, users, self._store.clock.now())
        if looked is None:
            raise unknown_room(room)
        return [self._place(room, ticket, looked.outlook) for ticket in looked.tickets]

    return patch.object(Wait, "_look_together", look)


@mutant("slot freed twice", 40)
def freed_twice() -> Any:
    original = room_steps.end

    def end(record: RoomRecord, tickets: Iterable[Ticket], state: TicketState) -> RoomStep[int]:
        step = original(record, tickets, state)
        tally = step.record.tally
        freed = any(ticket.promoted is not None for ticket in step.tickets)
        tally = replace(tally, in_use=tally.in_use - freed)
        return step._replace(record=replace(step.record, tally=tally))

    return patch.object(room_steps, "end", end)


@mutant("a reset without a new epoch", 150)
def same_epoch() -> Any:
    original = room_steps.reset

    def reset(record: RoomRecord) -> RoomRecord:
        return replace(original(record), room=record.room)

    return patch.object(room_steps, "reset", reset)


@mutant("a reset that forgets the line's numbers", 250)
def numbers_anew() -> Any:
    original = room_steps.reset

    def reset(record: RoomRecord) -> RoomRecord:
        fresh = original(record)
        return replace(fresh, tally=replace(fresh.tally, number=FIRST_NUMBER))

    return patch.object(room_steps, "reset", reset)


@mutant("lots are not drawn", 60)
def no_lots() -> Any:
    """Whoever clicks first is in."""
    drawn = iter(range(1, 1 << 40))

    def number(_seed: str, _user: str) -> int:
        return next(drawn)

    return patch.object(room_steps, "lot", number)


@mutant("let in before the opening", 60)
def opens_early() -> Any:
    original = room_steps.admit

    def admit(record: RoomRecord, waiting: Mapping[str, int], now: int, limit: int) -> Any:
        return original(record, waiting, max(now, record.room.settings.opens_at or 0), limit)

    return patch.object(room_steps, "admit", admit)


@mutant("entries of the dead are not taken over", 60)
def left_pending() -> Any:
    async def take_over(_self: Dispatcher) -> None:
        """Whoever had them will come back."""

    return patch.object(Dispatcher, "_take_over", take_over)


@mutant("tokens of a batch are mixed up", 150)
def mixed_up() -> Any:
    async def dispatch(self: Dispatcher, entries: Sequence[Entry]) -> int:
        if not entries:
            return 0
        for entry in entries:
            await self._learn_ttl(entry.room)
        tokens = [self._token(entry) for entry in reversed(entries)]
        return await self._entries.dispatch(
            [Dispatch(entry=e, token=t) for e, t in zip(entries, tokens, strict=True)]
        )

    return patch.object(Dispatcher, "dispatch", dispatch)
