"""Visitors of a waiting room, each with a will of their own; some vanish, some try twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.model.room import RoomDraft
from penstock.model.ticket import Ticket, TicketState
from penstock.model.times import format_moment
from penstock.rooms.parts import RoomParts
from penstock.rooms.wait import Place
from tests.simulation.entries import EntryStream
from tests.simulation.journal import Journal
from tests.simulation.plan import Plan
from tests.simulation.visits import KEEPS, ONCE

T = TypeVar("T")
Request = Callable[[random.Random, Callable[[RoomParts], Awaitable[object]]], Awaitable[object]]
"""Ask a process that is up; the answer, an error, or None when nobody answered."""

ROOM = "sale"
LOOKS = 60
GRACE = 6.0
"""Seconds of silence after which a waiting visitor is taken to be gone."""
SESSION = 4.0
"""Seconds of silence after which one who is inside is taken to be gone."""
LONG_STAY = 8
"""Signs of life of those who stay for longer than a session would last without them."""
MARGIN = 1.0
"""For clocks that are wrong, and answers on their way."""


def room_draft(plan: Plan, capacity: int, opens_at: int | None) -> RoomDraft:
    return RoomDraft(
        lottery=opens_at is not None,
        opens_at=None if opens_at is None else format_moment(opens_at),
        capacity=capacity,
        admit_rate=plan.rate,
        claim_ttl="2s",
        session_ttl=f"{SESSION:g}s",
        wait_grace=f"{GRACE:g}s",
        lanes={"vip": 3},
    )


async def visit(
    number: int, plan: Plan, journal: Journal, request: Request, stream: EntryStream | None
) -> None:
    """From joining to leaving, or to where this one gives up."""
    chance = random.Random(f"{plan.seed}:visitor:{number}")
    user = f"u{chance.randint(0, 12)}"
    lane = chance.choice(("default", "default", "vip"))
    will = chance.choice(("whole", "whole", "whole", "vanish", "late", "leave", "twice"))
    journal.note(user, "visits", user, f"{will} {lane}")
    joined = await _insist(request, chance, lambda parts: parts.join.join(ROOM, user, lane=lane))
    if joined is None or will == "vanish":
        return
    token = await _wait(request, chance, user, journal, leave=will == "leave")
    if stream is not None and number % 2:
        token = stream.tokens.get(user, token)  # as the visitor's own server was told
    if token is None or will == "late":
        return
    asked = asyncio.get_running_loop().time()
    entered = await request(chance, lambda parts: parts.enter.enter(ROOM, token))
    if will == "twice" and isinstance(entered, Ticket):
        again = await request(chance, lambda parts: parts.enter.enter(ROOM, token))
        if isinstance(again, Ticket):
            journal.fail(ONCE, user, "the same token let in twice")
    beats = chance.randint(0, 3)
    if isinstance(entered, Ticket) and random.Random(f"{plan.seed}:stay:{number}").random() < 0.4:
        beats = LONG_STAY
    await _stay(request, chance, user, journal, entered, asked, beats)
    await request(chance, lambda parts: parts.leave.leave(ROOM, user))


async def _stay(
    request: Request,
    chance: random.Random,
    user: str,
    journal: Journal,
    entered: object,
    asked: float,
    beats: int,
) -> None:
    """Inside, with a sign of life every second: nobody who gives it is put out.

    `asked`: when the entry was requested. The session begins when the store takes the token, which
    may be long before the answer, and before the next answer of a visitor who tries it twice.
    """
    loop = asyncio.get_running_loop()
    heard = asked
    for _ in range(beats):
        await asyncio.sleep(1)
        asked = loop.time()
        place = await request(chance, lambda parts: parts.wait.heartbeat(ROOM, user))
        if not isinstance(place, Place) or not isinstance(entered, Ticket):
            continue
        ticket, silent = place.ticket, loop.time() - heard
        if ticket.state is TicketState.EXPIRED and ticket.pass_id == entered.pass_id:
            if silent < SESSION - MARGIN and not journal.clocks_were_set():
                journal.fail(KEEPS, user, f"put out {silent:.1f} s after a sign of life")
            return
        heard = asked


async def _wait(
    request: Request, chance: random.Random, user: str, journal: Journal, *, leave: bool
) -> str | None:
    loop = asyncio.get_running_loop()
    seen, number = -GRACE, 0  # when the last look that was answered was asked for, and its ticket
    for looked in range(LOOKS):
        if leave and looked == 2:
            await request(chance, lambda parts: parts.leave.leave(ROOM, user))
            return None
        asked = loop.time()
        place = await request(chance, lambda parts: parts.wait.look(ROOM, user))
        if isinstance(place, Place):
            if place.token is not None:
                return place.token
            ticket = place.ticket
            if ticket.state is not TicketState.WAITING:
                silent = loop.time() - seen
                gone = ticket.state is TicketState.EXPIRED and ticket.promoted is None
                # After a reset, a join that the network delayed makes a ticket that is long over.
                same = gone and ticket.number == number
                if same and silent < GRACE - MARGIN and not journal.clocks_were_set():
                    journal.fail(KEEPS, user, f"given up {silent:.1f} s after a look")
                return None
            seen, number = asked, ticket.number
        await asyncio.sleep(chance.choice((0.4, 0.9)))
    return None


async def _insist(
    request: Request, chance: random.Random, work: Callable[[RoomParts], Awaitable[object]]
) -> object:
    for _ in range(5):
        answer = await request(chance, work)
        if answer is not None and not isinstance(answer, Exception):
            return answer
        await asyncio.sleep(0.3)
    return None
