"""The rooms of memory:// keep their own promises; those of other stores are compared with them."""

from __future__ import annotations

from hypothesis import settings

from penstock.ports.rooms import RoomStore
from penstock.stores.memory import MemoryStore
from penstock.testing.clock import ManualClock
from tests.rooms.machine import LONG_AGO, RoomMachine


class MemoryRoomMachine(RoomMachine):
    async def open_store(self) -> RoomStore:
        store = MemoryStore(ManualClock(LONG_AGO))
        return (await store.open_rooms(1000, "test")).store

    async def close_store(self) -> None:
        """Nothing is left."""


TestMemoryRooms = MemoryRoomMachine.TestCase
TestMemoryRooms.settings = settings(max_examples=25, stateful_step_count=40)
