"""All promises of a waiting room, tested on a store and the reference side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from penstock.model.room import Rate, RoomFigures, RoomSettings, RoomState
from penstock.model.room_view import room_out
from penstock.model.ticket import (
    EnterAnswer,
    Joining,
    Looked,
    Promotion,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomStore
from penstock.stores.memory.rooms import MemoryRooms
from penstock.testing.clock import ManualClock

T = TypeVar("T")
LONG_AGO = 1_000_000_000_000
"""2001: acceptable to a server that never lets `now` run ahead of its own clock."""
ROOM = "sale"
USERS = [f"u{n}" for n in range(9)]
users = st.sampled_from(USERS)
lanes = st.sampled_from(["default", "vip", "slow"])
rates = st.sampled_from([None, Rate(2, 1000), Rate(3, 60_000), Rate(50, 1000)])
ttls = st.sampled_from([None, 1_000, 5_000, 30_000])
settings_of_rooms = st.builds(
    RoomSettings,
    capacity=st.integers(0, 5),
    admit_rate=rates,
    claim_ttl=ttls,
    session_ttl=ttls,
    wait_grace=ttls,
    expire_outside=st.booleans(),
    lanes=st.sampled_from(
        [{"default": 1}, {"default": 1, "vip": 3}, {"default": 2, "vip": 3, "slow": 1}]
    ),
    lottery=st.booleans(),
    seed=st.sampled_from(["", "abc"]),
    opens_at=st.sampled_from([None, LONG_AGO + 3_000, LONG_AGO + 60_000]),
)


class RoomMachine(RuleBasedStateMachine):
    """Subclasses name the store to test."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = LONG_AGO
        self.store = self.run(self.open_store())
        self.model = MemoryRooms(ManualClock(LONG_AGO))
        self.passes: dict[str, tuple[str, str]] = {}
        """The reference's pass id → (user, the store's pass id)."""
        self.redeemed: set[str] = set()

    async def open_store(self) -> RoomStore:
        raise NotImplementedError

    async def close_store(self) -> None:
        raise NotImplementedError

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.loop.run_until_complete(wait())

    def teardown(self) -> None:
        self.run(self.close_store())
        self.loop.close()

    # --- steps -----------------------------------------------------------------------------------

    @initialize(settings=settings_of_rooms)
    def the_room_is_made(self, settings: RoomSettings) -> None:
        self.the_room_is_put(settings, None)

    @rule(settings=settings_of_rooms, state=st.sampled_from([None, *RoomState]))
    def the_room_is_put(self, settings: RoomSettings, state: RoomState | None) -> None:
        ours = self.run(self.model.put_room(ROOM, settings, state, self.now))
        theirs = self.run(self.store.put_room(ROOM, settings, state, self.now))
        assert theirs == ours

    @rule(state=st.sampled_from([RoomState.OPEN, RoomState.OPEN, *RoomState]))
    def the_state_is_set(self, state: RoomState) -> None:
        ours = self.run(self.model.set_state(ROOM, state, self.now))
        assert self.run(self.store.set_state(ROOM, state, self.now)) == ours

    @rule()
    def the_room_is_reset(self) -> None:
        before = self.figures()
        ours = self.run(self.model.reset(ROOM, self.now))
        assert self.run(self.store.reset(ROOM, self.now)) == ours
        figures = self.figures()
        assert figures is not None
        assert (figures.joined, figures.in_use, figures.waiting) == (0, 0, 0)
        assert before is not None
        assert _totals(figures) == _totals(before), "totals never go back"

    @rule(millis=st.sampled_from([1, 400, 1_000, 5_000, 20_000, 61_000, 700_000]))
    def time_passes(self, millis: int) -> None:
        self.now += millis

    @rule(asking=st.lists(st.tuples(users, lanes), min_size=1, max_size=5))
    def people_join(self, asking: list[tuple[str, str]]) -> None:
        joining = [Joining(user, lane, "i-1") for user, lane in asking]
        before = self.live_users()
        ours = self.run(self.model.join(ROOM, joining, self.now))
        theirs = self.run(self.store.join(ROOM, joining, self.now))
        assert ours is not None
        assert theirs is not None
        assert [a.answer for a in theirs.answers] == [a.answer for a in ours.answers]
        assert _plain([a.ticket for a in theirs.answers]) == _plain(
            [a.ticket for a in ours.answers]
        )
        assert theirs.outlook == ours.outlook
        for one, answer in zip(joining, theirs.answers, strict=True):
            assert (one.user in before) <= (answer.answer == "known")

    @rule(asked=st.lists(users, min_size=1, max_size=4), alive=st.booleans())
    def people_look(self, asked: list[str], alive: bool) -> None:
        ours = self.run(self.model.look(ROOM, asked, self.now, alive=alive))
        theirs = self.run(self.store.look(ROOM, asked, self.now, alive=alive))
        _same_look(theirs, ours)

    @rule(
        asked=st.lists(users, min_size=1, max_size=4), late=st.sampled_from([0, 0, 0, 900, 3_000])
    )
    def hearts_beat(self, asked: list[str], late: int) -> None:
        sent = self.now - late
        ours = self.run(self.model.heartbeat(ROOM, asked, sent))
        theirs = self.run(self.store.heartbeat(ROOM, asked, sent))
        _same_look(theirs, ours)

    @rule(limit=st.sampled_from([1, 2, 100, 100]))
    def the_room_is_promoted(self, limit: int) -> None:
        (ours,) = self.run(self.model.promote([ROOM], self.now, limit))
        (theirs,) = self.run(self.store.promote([ROOM], self.now, limit))
        assert _plain(theirs.admitted) == _plain(ours.admitted)
        assert (theirs.expired, theirs.more) == (ours.expired, ours.more)
        assert theirs.look_at == ours.look_at
        for mine, other in zip(ours.admitted, theirs.admitted, strict=True):
            self.passes[f"{mine.user}/{mine.pass_id}"] = (mine.pass_id, other.pass_id)
        self.check_promotion(theirs)

    @rule(data=st.data())
    def somebody_enters(self, data: st.DataObject) -> None:
        if not self.passes:
            return
        key = data.draw(st.sampled_from(sorted(self.passes)))
        user = key.partition("/")[0]
        mine, other = self.passes[key]
        (ours,) = self.run(self.model.enter(ROOM, [(user, mine)], self.now)) or []
        (theirs,) = self.run(self.store.enter(ROOM, [(user, other)], self.now)) or []
        assert theirs.answer == ours.answer
        assert _plain([theirs.ticket]) == _plain([ours.ticket])
        if theirs.answer is EnterAnswer.ENTERED:
            assert key not in self.redeemed, "a token is redeemed at most once"
            self.redeemed.add(key)

    @rule(user=users, pass_id=st.sampled_from(["", "0-0", "1-1", "x"]), other=users)
    def somebody_enters_with_anything(self, user: str, pass_id: str, other: str) -> None:
        known = {store_pass for _, store_pass in self.passes.values()}
        if pass_id not in known:
            (answer,) = self.run(self.store.enter(ROOM, [(user, pass_id)], self.now)) or []
            assert answer.answer is EnterAnswer.INVALID
        for key, (_, store_pass) in self.passes.items():
            if not key.startswith(f"{other}/") and f"{other}/{key}" not in self.passes:
                (answer,) = self.run(self.store.enter(ROOM, [(other, store_pass)], self.now)) or []
                assert answer.answer is EnterAnswer.INVALID

    @rule(
        leaving=st.lists(users, min_size=1, max_size=3),
        state=st.sampled_from([TicketState.LEFT, TicketState.REVOKED]),
    )
    def people_leave(self, leaving: list[str], state: TicketState) -> None:
        before = self.figures()
        holding = {
            user
            for user, ticket in self.all_tickets().items()
            if user in leaving and ticket.state in ("ADMITTED", "ENTERED")
        }
        ours = self.run(self.model.leave(ROOM, leaving, self.now, state))
        theirs = self.run(self.store.leave(ROOM, leaving, self.now, state))
        assert ours is not None
        assert theirs is not None
        assert _plain(theirs) == _plain(ours)
        after = self.figures()
        assert before is not None
        assert after is not None
        assert before.in_use - after.in_use == len(holding), "an exit frees exactly one slot"

    # --- invariants ------------------------------------------------------------------------------

    @invariant()
    def the_figures_agree_and_add_up(self) -> None:
        (ours,) = self.run(self.model.figures([ROOM], self.now))
        theirs = self.figures()
        assert theirs == ours
        if theirs is None:
            return
        assert theirs.admitted + theirs.entered == theirs.in_use
        ended = theirs.left + theirs.expired + theirs.revoked
        assert theirs.joined == theirs.waiting + theirs.in_use + ended

    @invariant()
    def places_are_dense_and_follow_the_numbers(self) -> None:
        by_lane: dict[str, list[Ticket]] = {}
        for ticket in self.all_tickets().values():
            if ticket.state is TicketState.WAITING:
                by_lane.setdefault(ticket.lane, []).append(ticket)
            else:
                assert ticket.ahead is None
        for waiting in by_lane.values():
            waiting.sort(key=lambda ticket: (ticket.number, ticket.user))
            assert [ticket.ahead for ticket in waiting] == list(range(len(waiting)))

    def check_promotion(self, promotion: Promotion) -> None:
        figures = self.figures()
        (room,) = self.run(self.store.rooms([ROOM]))
        assert figures is not None
        assert room is not None
        if figures.state is not RoomState.OPEN:
            assert not promotion.admitted, "only an open room admits"
            return
        if promotion.admitted:
            assert figures.in_use <= room.settings.capacity
        elif room.settings.admit_rate is None and not promotion.more:
            assert figures.waiting == 0 or figures.in_use >= figures.room.settings.capacity, (
                "no slot is idle"
            )
        waiting = [t for t in self.all_tickets().values() if t.state is TicketState.WAITING]
        for admitted in promotion.admitted:
            for other in waiting:
                if other.lane == admitted.lane:
                    mine, theirs = (admitted.number, admitted.user), (other.number, other.user)
                    assert mine < theirs, "first come, first in"

    def figures(self) -> RoomFigures | None:
        (figures,) = self.run(self.store.figures([ROOM], self.now))
        return figures

    def all_tickets(self) -> dict[str, Ticket]:
        looked = self.run(self.store.look(ROOM, USERS, self.now))
        if looked is None:
            return {}
        return {ticket.user: ticket for ticket in looked.tickets if ticket is not None}

    def live_users(self) -> set[str]:
        return {
            user
            for user, ticket in self.all_tickets().items()
            if ticket.state in ("WAITING", "ADMITTED", "ENTERED")
        }


def _totals(figures: RoomFigures) -> tuple[int, ...]:
    out = room_out(figures)
    return out.joined_total, out.promoted_total, out.left_total, out.expired_total


def _same_look(theirs: Looked | None, ours: Looked | None) -> None:
    assert theirs is not None
    assert ours is not None
    assert _plain(theirs.tickets) == _plain(ours.tickets)
    assert theirs.outlook == ours.outlook


def _plain(tickets: Sequence[Ticket | None]) -> list[Ticket | None]:
    """Tickets without the numbers that each store assigns in its own way."""
    return [
        None if ticket is None else replace(ticket, number=0, pass_id=bool(ticket.pass_id) * "p")
        for ticket in tickets
    ]
