"""The plain model keeps its own promises."""

from hypothesis import settings

from penstock.ports.rooms import RoomStore
from penstock.testing.clock import ManualClock
from penstock.testing.room_model import ModelRooms
from tests.rooms.machine import LONG_AGO, RoomMachine


class ModelMachine(RoomMachine):
    async def open_store(self) -> RoomStore:
        return ModelRooms(ManualClock(LONG_AGO))

    async def close_store(self) -> None:
        pass


TestModelRooms = ModelMachine.TestCase
TestModelRooms.settings = settings(max_examples=25, stateful_step_count=40)
