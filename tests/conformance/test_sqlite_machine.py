"""SQLite and the reference in memory agree on every walk Hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import settings

from penstock.testing.store_machine import StoreMachine
from tests.conformance.sqlite_harness import SqliteHarness


class MemoryMachine(StoreMachine):
    durable = False

    def make_harness(self) -> SqliteHarness:
        return SqliteHarness(in_memory=True)


class FileMachine(StoreMachine):
    def make_harness(self) -> SqliteHarness:
        return SqliteHarness("?synchronous=normal")


class LongFileMachine(FileMachine):
    """The same for longer."""


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=70, stateful_step_count=50)
TestFileMachine = FileMachine.TestCase
TestFileMachine.settings = settings(max_examples=15, stateful_step_count=40)
TestLongFileMachine = pytest.mark.slow(LongFileMachine.TestCase)
TestLongFileMachine.settings = settings(max_examples=40, stateful_step_count=80)
