"""Rooms in SQLite agree with the plain model, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from penstock.model.clock import SystemClock
from penstock.ports.rooms import RoomStore
from penstock.stores.sqlite import SqliteStore, open_store
from tests.rooms.crowd import run_crowd
from tests.rooms.machine import RoomMachine


class SqliteMachine(RoomMachine):
    async def open_store(self) -> RoomStore:
        opened = await open_store(
            "sqlite://", total_partitions=1, retention=1000, retention_count=10, clock=SystemClock()
        )
        assert isinstance(opened, SqliteStore)
        self.opened = opened
        return (await opened.open_rooms(1000, "test")).store

    async def close_store(self) -> None:
        await self.opened.close()


TestSqliteRooms = pytest.mark.slow(SqliteMachine.TestCase)
TestSqliteRooms.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
async def test_a_crowd_of_a_hundred_thousand_of_whom_a_tenth_gives_up(tmp_path: Path) -> None:
    opened = await open_store(
        f"sqlite:///{tmp_path}/crowd.db?synchronous=normal",
        total_partitions=1,
        retention=1000,
        retention_count=10,
        clock=SystemClock(),
    )
    assert isinstance(opened, SqliteStore)
    try:
        await run_crowd((await opened.open_rooms(1000, "test")).store, 100_000, 1_000)
    finally:
        await opened.close()
