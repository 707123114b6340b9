"""Waiting rooms with the same verbs and answers, embedded and over HTTP."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

import penstock
from penstock.api.http.server import HttpServer
from penstock.model.room import RoomState
from penstock.model.ticket import TicketState
from penstock.sdk.async_rooms import AsyncRooms
from penstock.sdk.embedded import engine_over
from penstock.sdk.embedded_rooms import EmbeddedRooms
from penstock.sdk.sync_rooms import SyncRooms
from penstock.wiring import Parts, open_rooms
from tests.integration.sdk.conftest import TOKEN, Threaded


@pytest.fixture(params=["engine", "async client", "client"])
async def rooms(request: pytest.FixtureRequest, parts: Parts) -> AsyncIterator[AsyncRooms]:
    """Typed as one of the three; that all have the same verbs is tested below."""
    async with AsyncExitStack() as stack:
        if request.param == "engine":
            engine = await stack.enter_async_context(engine_over(parts, {}))
            opened = await engine.rooms.open()
            verbs: Any = engine.rooms
        else:
            opened = await stack.enter_async_context(open_rooms(parts))
            server = await stack.enter_async_context(HttpServer(parts, rooms=opened))
            if request.param == "client":
                client = stack.enter_context(penstock.Client(server.url, token=TOKEN))
                verbs = Threaded(cast("penstock.Client", client.rooms))
            else:
                verbs = (
                    await stack.enter_async_context(penstock.AsyncClient(server.url, token=TOKEN))
                ).rooms
        assert opened is not None
        promoting = asyncio.create_task(opened.run())
        yield verbs
        promoting.cancel()
        await asyncio.wait([promoting])


async def state_of(rooms: AsyncRooms | EmbeddedRooms, user: str, wanted: TicketState) -> Any:
    async with asyncio.timeout(300):
        while True:
            found = await rooms.ticket("sale", user)
            if found.state is wanted:
                return found
            await asyncio.sleep(0.01)


async def test_the_path_of_a_visitor(rooms: AsyncRooms) -> None:
    made = await rooms.put("sale", capacity=1, claim_ttl="2m", lanes={"vip": 3})
    assert (made.capacity, made.claim_ttl, made.lanes) == (1, "2m", {"default": 1, "vip": 3})
    first = await rooms.join("sale", "u1", lane="vip")
    assert (first.user, first.lane) == ("u1", "vip")
    assert first.ticket
    admitted = await state_of(rooms, "u1", TicketState.ADMITTED)
    entered = await rooms.enter("sale", admitted.token)
    assert entered.state is TicketState.ENTERED
    with pytest.raises(penstock.TokenUsed):
        await rooms.enter("sale", admitted.token)
    with pytest.raises(penstock.InvalidToken):
        await rooms.enter("sale", "a.b.c")
    assert (await rooms.heartbeat("sale", "u1")).session_expires is not None
    second = await rooms.join("sale", "u2")
    assert (second.state, second.position) == (TicketState.WAITING, 1)
    assert (await rooms.leave("sale", "u1")).state is TicketState.LEFT
    await state_of(rooms, "u2", TicketState.ADMITTED)
    assert (await rooms.revoke("sale", "u2")).state is TicketState.REVOKED


async def test_an_operator_opens_pauses_closes_and_resets(rooms: AsyncRooms) -> None:
    await rooms.put("sale", capacity=0, claim_ttl=None)
    await rooms.put("other")
    assert (await rooms.pause("sale")).state is RoomState.PAUSED
    assert (await rooms.resume("sale")).state is RoomState.OPEN
    await rooms.join("sale", "u1")
    assert (await rooms.close("sale")).state is RoomState.CLOSED
    with pytest.raises(penstock.RoomClosed):
        await rooms.join("sale", "u2")
    assert (await rooms.reset("sale")).epoch == 2
    seen = await rooms.get("sale")
    assert (seen.claim_ttl, seen.waiting, seen.joined_total) == (None, 0, 1)
    first, cursor = await rooms.list(limit=1)
    rest, end = await rooms.list(cursor=cursor, limit=1)
    assert [room.room for room in first + rest] == ["other", "sale"]
    assert end is None


async def test_what_is_wrong_is_the_same_error(rooms: AsyncRooms) -> None:
    with pytest.raises(penstock.UnknownThing) as unknown:
        await rooms.get("none")
    assert unknown.value.field == "room"
    with pytest.raises(penstock.InvalidMessage) as invalid:
        await rooms.put("sale", capacity=-1)
    assert invalid.value.field == "capacity"
    with pytest.raises(penstock.InvalidMessage) as unknown_field:
        await rooms.put("sale", capasity=1)  # type: ignore[call-arg]
    assert unknown_field.value.field == "capasity"


def test_all_three_have_the_same_verbs() -> None:
    def verbs(kind: type) -> dict[str, list[str]]:
        public: dict[str, Callable[..., Any]] = {
            name: verb
            for name, verb in vars(kind).items()
            if not name.startswith("_") and name != "open"
        }
        return {name: list(inspect.signature(verb).parameters) for name, verb in public.items()}

    assert verbs(AsyncRooms) == verbs(SyncRooms) == verbs(EmbeddedRooms)


async def test_an_embedded_worker_lets_people_in() -> None:
    async with penstock.open("sqlite://", routes={"default": print}, worker=True) as engine:
        await engine.rooms.put("sale", capacity=1)
        await engine.rooms.join("sale", "u1")
        await state_of(engine.rooms, "u1", TicketState.ADMITTED)


async def test_rooms_are_opened_once_however_many_ask_first(parts: Parts) -> None:
    async with engine_over(parts, {}) as engine:
        opened = await asyncio.gather(*(engine.rooms.open() for _ in range(5)))
        assert len({id(one) for one in opened}) == 1
