"""Rules on the stores that need no server."""

from __future__ import annotations

import pytest

from penstock.testing.recurring_suite import DurableRecurringSuite, MakeHarness, RecurringSuite
from tests.conformance.memory_harness import MemoryHarness
from tests.conformance.sqlite_harness import SqliteHarness


class TestMemoryRecurring(RecurringSuite):
    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        return MemoryHarness


class TestSqliteRecurring(DurableRecurringSuite):
    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        return SqliteHarness
