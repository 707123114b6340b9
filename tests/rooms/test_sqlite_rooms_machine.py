"""Rooms in SQLite agree with the plain model, step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.room import RoomSettings
from penstock.model.ticket import Joining
from penstock.stores.sqlite import SqliteStore, open_store
from penstock.testing.room_machine import LONG_AGO, ROOM, USERS
from penstock.testing.room_suite import RoomSuite
from penstock.testing.store_harness import StoreHarness
from penstock.time.clock import SystemClock
from tests.conformance.sqlite_harness import SqliteHarness
from tests.rooms.crowd import run_crowd


async def open_at(url: str) -> SqliteStore:
    opened = (
        await open_store(
            url, total_partitions=1, retention=1000, retention_count=10, clock=SystemClock()
        )
    ).messages
    assert isinstance(opened, SqliteStore)
    return opened


@pytest.mark.slow
class TestSqliteRooms(RoomSuite):
    examples = 40

    @pytest.fixture
    def make_harness(self) -> Callable[[], StoreHarness]:
        return lambda: SqliteHarness(in_memory=True)


@pytest.mark.slow
async def test_a_crowd_of_a_hundred_thousand_of_whom_a_tenth_gives_up(tmp_path: Path) -> None:
    opened = await open_at(f"sqlite:///{tmp_path}/crowd.db?synchronous=normal")
    try:
        await run_crowd((await opened.open_rooms(1000, "test")).store, 100_000, 1_000)
    finally:
        await opened.close()


async def test_a_call_for_many_rooms_stops_at_its_measure_and_says_that_there_is_more() -> None:
    opened = await open_at("sqlite://")
    rooms = (await opened.open_rooms(1000, "test")).store
    names = [f"room {n}" for n in range(4)]
    for name in names:
        await rooms.put_room(name, RoomSettings(capacity=1000), None, LONG_AGO)
        await rooms.join(name, [Joining(f"u{n}") for n in range(400)], LONG_AGO)
    first = await rooms.promote([*names, "nowhere"], LONG_AGO, 500)
    again = await rooms.promote([p.room for p in first if p.more], LONG_AGO, 500)
    await opened.close()
    assert [(p.room, len(p.admitted), p.more) for p in first] == [
        *((name, 400, False) for name in names[:3]),
        (names[3], 0, True),
        ("nowhere", 0, False),
    ]
    assert [(p.room, len(p.admitted)) for p in again] == [(names[3], 400)]


async def test_people_of_two_rooms_who_came_by_turns_are_let_in_each_to_their_own() -> None:
    opened = await open_at("sqlite://")
    rooms = (await opened.open_rooms(1000, "test")).store
    for name in ("a", "b"):
        await rooms.put_room(name, RoomSettings(capacity=4), None, LONG_AGO)
    for name, users in (("a", "01"), ("b", "0"), ("a", "2"), ("b", "12345"), ("a", "345")):
        await rooms.join(name, [Joining(user) for user in users], LONG_AGO)
    promoted = await rooms.promote(["a", "b"], LONG_AGO, 10)
    looked = [await rooms.look(name, list("012345"), LONG_AGO) for name in ("a", "b")]
    await opened.close()
    for promotion, seen in zip(promoted, looked, strict=True):
        assert seen is not None
        assert [ticket.user for ticket in promotion.admitted] == list("0123")
        assert [ticket and ticket.pass_id for ticket in seen.tickets[:4]] == [
            ticket.pass_id for ticket in promotion.admitted
        ]
        assert [ticket and ticket.ahead for ticket in seen.tickets] == [None] * 4 + [0, 1]


async def test_turns_that_another_process_gave_are_told_once(tmp_path: Path) -> None:
    here, there = [await open_at(f"sqlite:///{tmp_path}/r.db") for _ in range(2)]
    ours, theirs = [(await opened.open_rooms(1000, "test")).store for opened in (here, there)]
    await ours.put_room(ROOM, RoomSettings(capacity=2), None, LONG_AGO)
    await ours.join(ROOM, [Joining(user) for user in USERS], LONG_AGO)
    asked = []

    def waiting() -> dict[str, list[str]]:
        asked.append(1)
        return {ROOM: USERS[1:4], "nowhere": ["u"]}

    before = await ours.turns_elsewhere(waiting)
    await ours.look(ROOM, USERS, LONG_AGO, alive=True)
    quiet = await ours.turns_elsewhere(waiting), len(asked)
    await theirs.promote([ROOM], LONG_AGO, 10)
    turned = await ours.turns_elsewhere(waiting)
    again = await ours.turns_elsewhere(waiting)
    for opened in (here, there):
        await opened.close()
    assert before == {ROOM: [], "nowhere": ["u"]}
    assert quiet == ({}, 1), "what this process did is no news, and nobody is asked"
    assert turned[ROOM] == USERS[1:2]
    assert again == {}
