"""One suite for every store of waiting rooms: the executable form of `penstock.ports.rooms`.

    class TestMyRooms(RoomSuite):
        @pytest.fixture
        def make_harness(self):
            return MyHarness               # penstock.testing.store_harness.StoreHarness

Needs pytest and hypothesis. Every answer is compared with `penstock.stores.memory`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.ports.rooms import OpenRooms, RoomStore
from penstock.ports.store import Store
from penstock.testing.room_machine import RoomMachine
from penstock.testing.store_harness import StoreHarness


class RoomSuite:
    """A store author's subclass provides `make_harness`: each call makes an empty place.

    The suite's moments are long past, whatever the harness's clock says.
    """

    examples: ClassVar[int] = 25
    """Number of random walks …"""
    steps: ClassVar[int] = 40
    """… and most steps of each."""

    def test_every_answer_is_that_of_the_reference(
        self, make_harness: Callable[[], StoreHarness]
    ) -> None:
        class Machine(RoomMachine):
            harness: StoreHarness
            opened: Store
            rooms: OpenRooms

            async def open_store(self) -> RoomStore:
                self.harness = make_harness()
                self.opened = await self.harness.open()
                assert self.opened.rooms is not None, "this suite is for a store that keeps rooms"
                self.rooms = await self.opened.rooms.open_rooms(1000, "test")
                return self.rooms.store

            async def close_store(self) -> None:
                await self.rooms.close()
                await self.opened.close()
                await self.harness.close()

        walks = settings(max_examples=self.examples, stateful_step_count=self.steps, deadline=None)
        run_state_machine_as_test(Machine, settings=walks)
