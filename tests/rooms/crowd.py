"""A crowd through one room at the level of the store, in virtual time.

A tenth gives up: half of them leave the line, the other half never come when it is their turn.
What the room promises is checked by user.
"""

from __future__ import annotations

import random

from penstock.model.room import RoomSettings
from penstock.model.ticket import EnterAnswer, JoinAnswer, Joining, Ticket, TicketState
from penstock.ports.rooms import RoomStore
from penstock.testing.room_machine import LONG_AGO

ROOM = "sale"
BATCH = 500
STEP_MS = 50
CLAIM_MS = 1_000


class Crowd:
    """Who came, who is inside, and what must hold of them."""

    def __init__(self, store: RoomStore, people: int, capacity: int) -> None:
        self._store = store
        self._capacity = capacity
        self.came = [f"u{number}" for number in range(people)]
        given_up = random.Random(6).sample(self.came[capacity:], people // 10)
        self.leavers, self.absent = given_up[::2], set(given_up[1::2])
        self.let_in: list[str] = []
        self.inside: set[str] = set()
        self.held: dict[str, int] = {}
        """Absent visitors who were let in → when their slot goes back."""

    async def join(self, now: int) -> None:
        for first in range(0, len(self.came), BATCH):
            users = self.came[first : first + BATCH]
            joined = await self._store.join(ROOM, [Joining(user) for user in users], now)
            assert joined is not None
            assert {answer.answer for answer in joined.answers} == {JoinAnswer.NEW}
            places = [one.ticket.ahead for one in joined.answers if one.ticket is not None]
            assert places == list(range(first, first + len(users))), "places are dense"

    async def give_up(self, now: int) -> None:
        for first in range(0, len(self.leavers), BATCH):
            await self._leave(self.leavers[first : first + BATCH], now)

    async def step(self, now: int) -> bool:
        """One promotion, and what those who were let in do then. False: nothing is left to do."""
        (promotion,) = await self._store.promote([ROOM], now, BATCH)
        over = {user for user, until in self.held.items() if until <= now}
        assert promotion.expired == len(over), "a slot that is not claimed goes back in time"
        self.held = {user: until for user, until in self.held.items() if user not in over}
        self.inside -= over
        self._note([ticket.user for ticket in promotion.admitted])
        absent = [ticket for ticket in promotion.admitted if ticket.user in self.absent]
        self.held |= {ticket.user: ticket.until or 0 for ticket in absent}
        await self._visit([t for t in promotion.admitted if t.user not in self.absent], now)
        return bool(promotion.admitted or self.held)

    def _note(self, users: list[str]) -> None:
        self.let_in += users
        assert not self.inside & set(users), "nobody holds two slots"
        self.inside |= set(users)
        assert len(self.inside) <= self._capacity, "never more than there are slots"

    async def _visit(self, tickets: list[Ticket], now: int) -> None:
        if not tickets:
            return
        passes = [(ticket.user, ticket.pass_id) for ticket in tickets]
        entered = await self._store.enter(ROOM, passes, now)
        assert entered is not None
        assert {one.answer for one in entered} == {EnterAnswer.ENTERED}
        again = await self._store.enter(ROOM, passes[:1], now)
        assert again is not None
        assert again[0].answer is EnterAnswer.USED, "a token is redeemed once"
        users = [ticket.user for ticket in tickets]
        await self._leave(users, now)
        self.inside -= set(users)

    async def _leave(self, users: list[str], now: int) -> None:
        left = await self._store.leave(ROOM, users, now)
        assert left is not None
        assert {ticket.state for ticket in left if ticket is not None} == {TicketState.LEFT}

    async def check_end(self, now: int) -> None:
        gone = set(self.leavers)
        expected = [user for user in self.came if user not in gone]
        assert self.let_in == expected, "first come, first in; nobody forgotten, nobody twice"
        assert not self.inside
        (figures,) = await self._store.figures([ROOM], now)
        assert figures is not None
        assert (figures.waiting, figures.admitted, figures.entered, figures.in_use) == (0, 0, 0, 0)
        assert figures.joined == len(self.came)
        assert figures.promoted == len(expected)
        assert (figures.left, figures.expired) == (
            len(self.came) - len(self.absent),
            len(self.absent),
        )


async def run_crowd(store: RoomStore, people: int, capacity: int) -> None:
    now = LONG_AGO
    settings = RoomSettings(capacity=capacity, claim_ttl=CLAIM_MS, wait_grace=None)
    await store.put_room(ROOM, settings, None, now)
    crowd = Crowd(store, people, capacity)
    await crowd.join(now)
    await crowd.give_up(now)
    while await crowd.step(now):
        now += STEP_MS
    await crowd.check_end(now)
