"""The people who run it: they change policies and rooms, pause routes, and tidy up in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.policy import Suppression, policy_from
from penstock.model.room import RoomState
from penstock.rooms.parts import RoomParts
from tests.simulation.fleet import Fleet
from tests.simulation.plan import Event, Kind, is_away
from tests.simulation.policies import POLICIES
from tests.simulation.process import Life
from tests.simulation.visitors import ROOM, room_draft


class Operators:
    """Each request goes to any process that is up; some are never answered."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._plan = fleet.plan

    async def prepare(self) -> None:
        """What is in force from the start, unless nobody hears it."""
        for name in self._plan.policies:
            await self._set_policy(name, put=True)
        if self._plan.rooms:
            opens = self._fleet.clock.now() + self._plan.opens if self._plan.opens else None
            self._fleet.server.books.visits.opens_at = opens
            await self._set_room(2)

    def operate(self, event: Event) -> None:
        self._fleet.loop.spawn(self._do(event))

    async def _do(self, event: Event) -> None:
        match event.kind:
            case Kind.PAUSE:
                await self._pause(event.target, True)
                await asyncio.sleep(event.span / 1000)
                await self._pause(event.target, False)
            case Kind.POLICY:
                await self._set_policy(event.detail, put=bool(event.value))
            case Kind.CAPACITY:
                await self._set_room(event.value)
            case Kind.SHUT:
                await self._set_room_state(RoomState.PAUSED)
                await asyncio.sleep(event.span / 1000)
                await self._set_room_state(RoomState.OPEN)
            case Kind.RESET:
                await self._ask_room(lambda parts: parts.operate.reset(ROOM))

    async def restore(self) -> None:
        """Nothing is held back any more, by anybody."""
        insist = self._fleet.insist
        for route in self._plan.routes:
            await insist(partial(_resume, route.name))
        if not is_away(self._plan.stays, "policies"):
            for name in POLICIES:
                await insist(partial(_drop, name))
            await insist(lambda life: _done(life.policies.drop_suppression("list")))
        if self._plan.rooms and not is_away(self._plan.stays, "rooms"):
            draft = room_draft(self._plan, 3, self._opens())
            await insist(lambda life: _done(_rooms(life).operate.put(ROOM, draft)))
            opened = RoomState.OPEN
            await insist(lambda life: _done(_rooms(life).operate.set_state(ROOM, opened)))

    async def release(self, message_id: str) -> None:
        await self._fleet.insist(lambda life: _done(life.control.release(message_id)))

    def _opens(self) -> int | None:
        return self._fleet.server.books.visits.opens_at

    async def _pause(self, route: str, paused: bool) -> None:
        await self._fleet.request(
            self._fleet.chance, lambda life: life.control.pause(route, paused)
        )

    async def _set_policy(self, name: str, *, put: bool) -> None:
        async def work(life: Life) -> object:
            if name == "suppress" and put:
                await life.policies.put_suppression("list", Suppression(keys=("k4",)))
            elif name == "suppress":
                await life.policies.drop_suppression("list")
            elif put:
                await life.policies.put({name: policy_from(POLICIES[name])})
            else:
                await life.policies.drop(name)
            return True

        await self._fleet.request(self._fleet.chance, work)

    async def _set_room(self, capacity: int) -> None:
        draft = room_draft(self._plan, capacity, self._opens())
        await self._ask_room(lambda parts: parts.operate.put(ROOM, draft))

    async def _set_room_state(self, state: RoomState) -> None:
        await self._ask_room(lambda parts: parts.operate.set_state(ROOM, state))

    async def _ask_room(self, work: Callable[[RoomParts], Awaitable[object]]) -> None:
        await self._fleet.room_request(self._fleet.chance, work)


async def _done(work: Awaitable[object]) -> object:
    """True, or the error that is an answer too."""
    try:
        await work
    except StoreUnavailable:
        raise
    except PenstockError as exc:
        return exc
    return True


async def _resume(route: str, life: Life) -> object:
    return await _done(life.control.pause(route, False))


async def _drop(policy: str, life: Life) -> object:
    return await _done(life.policies.drop(policy))


def _rooms(life: Life) -> RoomParts:
    assert life.rooms is not None
    return life.rooms
