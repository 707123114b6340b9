"""Rooms in PostgreSQL agree with the plain model, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.model.room import RoomSettings
from penstock.model.ticket import Joining
from penstock.testing.room_machine import LONG_AGO, ROOM
from penstock.testing.room_suite import RoomSuite
from penstock.testing.store_harness import StoreHarness
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness


class TestPostgresRooms(RoomSuite):
    examples = 10

    @pytest.fixture
    def make_harness(self, postgres: PostgresServer) -> Callable[[], StoreHarness]:
        return lambda: PostgresHarness(postgres)


async def test_processes_that_promote_at_once_let_in_no_more_than_fit(
    postgres: PostgresServer,
) -> None:
    harness = PostgresHarness(postgres)
    stores = [await harness.open() for _ in range(3)]
    rooms = [(await store.rooms.open_rooms(100, "t")).store for store in stores if store.rooms]
    await asyncio.gather(
        *(one.put_room(ROOM, RoomSettings(capacity=7), None, LONG_AGO) for one in rooms)
    )
    people = [[Joining(f"{n}-{m}") for m in range(10)] for n in range(len(rooms))]
    await asyncio.gather(
        *(one.join(ROOM, some, LONG_AGO) for one, some in zip(rooms, people, strict=True))
    )
    promoted = await asyncio.gather(*(one.promote([ROOM], LONG_AGO, 10) for one in rooms))
    admitted = [ticket.user for (promotion,) in promoted for ticket in promotion.admitted]
    for store in stores:
        await store.close()
    await harness.close()
    assert len(admitted) == len(set(admitted)) == 7
