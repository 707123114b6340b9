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
from tests.simulation.visits import ONCE

T = TypeVar("T")
Request = Callable[[random.Random, Callable[[RoomParts], Awaitable[object]]], Awaitable[object]]
"""Ask a process that is up; the answer, an error, or None when nobody answered."""

ROOM = "sale"
LOOKS = 60


def room_draft(plan: Plan, capacity: int, opens_at: int | None) -> RoomDraft:
    return RoomDraft(
        lottery=opens_at is not None,
        opens_at=None if opens_at is None else format_moment(opens_at),
        capacity=capacity,
        admit_rate=plan.rate,
        claim_ttl="2s",
        session_ttl="4s",
        wait_grace="6s",
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
    token = await _wait(request, chance, user, leave=will == "leave")
    if stream is not None and number % 2:
        token = stream.tokens.get(user, token)  # as the visitor's own server was told
    if token is None or will == "late":
        return
    entered = await request(chance, lambda parts: parts.enter.enter(ROOM, token))
    if will == "twice" and isinstance(entered, Ticket):
        again = await request(chance, lambda parts: parts.enter.enter(ROOM, token))
        if isinstance(again, Ticket):
            journal.fail(ONCE, user, "the same token let in twice")
    for _ in range(chance.randint(0, 3)):
        await asyncio.sleep(1)
        await request(chance, lambda parts: parts.wait.heartbeat(ROOM, user))
    await request(chance, lambda parts: parts.leave.leave(ROOM, user))


async def _wait(request: Request, chance: random.Random, user: str, *, leave: bool) -> str | None:
    for looked in range(LOOKS):
        if leave and looked == 2:
            await request(chance, lambda parts: parts.leave.leave(ROOM, user))
            return None
        place = await request(chance, lambda parts: parts.wait.look(ROOM, user))
        if isinstance(place, Place):
            if place.token is not None:
                return place.token
            if place.ticket.state is not TicketState.WAITING:
                return None
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
