"""The rooms of memory:// keep their own promises; those of other stores are compared with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing.room_suite import RoomSuite
from penstock.testing.store_harness import StoreHarness
from tests.conformance.memory_harness import MemoryHarness


class TestMemoryRooms(RoomSuite):
    @pytest.fixture
    def make_harness(self) -> Callable[[], StoreHarness]:
        return MemoryHarness
