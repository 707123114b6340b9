"""What a worker holds is bounded in bytes, and one lane leaves room for the others."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.release import share_of_free
from penstock.model.errors import StoreCorrupt
from penstock.model.message import NewMessage
from penstock.model.outcome import Claim
from penstock.model.route import Route
from penstock.model.size import Filling, fitting, in_calls, size_of, total_size
from penstock.model.state import State
from penstock.testing.store_cases.base import new
from tests.unit.flow.rig import Engine, FakeSink

KIB = 1024
LARGE = "x" * (100 * KIB)


async def schedule(engine: Engine, number: int, **fields: object) -> None:
    for place in range(number):
        await engine.schedule(id=f"{fields.get('route', 'm')}-{place}", payload=LARGE, **fields)


async def test_a_lane_holds_no_more_than_its_share_of_the_bytes(engine: Engine) -> None:
    engine.in_flight_bytes = 1_000 * KIB
    engine.sink.gate = asyncio.Event()
    await schedule(engine, 40)
    async with engine.working() as worker:
        await engine.clock.advance(1_000)
        assert len(engine.sink.sent) == 8  # three quarters, and a last one
        assert worker.lanes["default"].bytes <= 850 * KIB
        engine.sink.gate.set()
        await engine.clock.advance(1_000)
        assert sorted(engine.sink.ids) == sorted(f"m-{place}" for place in range(40))
        assert worker.lanes["default"].bytes == 0


async def test_a_lane_with_a_dead_sink_leaves_bytes_to_the_others(engine: Engine) -> None:
    engine.in_flight_bytes = 1_000 * KIB
    dead = FakeSink(engine.clock)
    dead.gate = asyncio.Event()
    engine.add_route(Route(name="dead"), dead)
    await schedule(engine, 40, route="dead")
    await schedule(engine, 20)
    async with engine.working():
        await engine.clock.advance(1_000)
        assert len(engine.sink.sent) == 20
        assert len(dead.sent) == 8
        dead.gate.set()


async def test_a_message_larger_than_all_bytes_goes_out_alone(engine: Engine) -> None:
    engine.in_flight_bytes = KIB
    await schedule(engine, 5)
    async with engine.working():
        await engine.clock.advance(1_000)
        assert len(engine.sink.sent) == 5


async def test_a_lane_that_waits_for_bytes_goes_on_when_another_lane_has_settled(
    engine: Engine,
) -> None:
    engine.in_flight_bytes = 1_000 * KIB
    slow = FakeSink(engine.clock)
    slow.gate = asyncio.Event()
    engine.add_route(Route(name="slow"), slow)
    engine.sink.gate = asyncio.Event()
    await schedule(engine, 10)
    async with engine.working() as worker:
        await engine.clock.advance(1_000)
        await schedule(engine, 10, route="slow")
        await engine.clock.advance(1_000)
        held = len(slow.sent)
        assert 0 < held < 10
        engine.sink.gate.set()  # of the other lane nothing is settled
        await engine.clock.advance(1_000)
        assert len(slow.sent) > held
        slow.gate.set()
        await engine.clock.advance(1_000)
        assert worker.lanes["slow"].bytes == 0


async def test_an_error_of_a_claim_that_nobody_expects_does_not_end_the_worker(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claim = engine.store.claim
    failures = iter(range(3))

    async def failing(route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        if next(failures, None) is not None:
            raise StoreCorrupt("fake://: an item is too large")
        return await claim(route, limit, lease, now, max_bytes)

    monkeypatch.setattr(engine.store, "claim", failing)
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(5_000)
        assert engine.sink.ids == ["m"]
    assert await engine.state("m") is State.DELIVERED
    assert "a claim for default failed; it is repeated" in caplog.text


@given(st.lists(st.integers(0, 1_000), max_size=20))
def test_whatever_lanes_hold_their_shares_never_exceed_the_whole(lanes: list[int]) -> None:
    free, held = 10_000, []
    for _ in lanes:
        more = max(0, share_of_free(0, free))
        held.append(more)
        free -= more
    assert free >= 0
    assert sum(held) <= 10_000
    assert all(share_of_free(one, free) <= 0 or free > 0 for one in held)


@given(st.lists(st.integers(0, 100)), st.integers(0, 500), st.integers(0, 1))
def test_fitting_is_the_longest_beginning_that_fits(
    sizes: list[int], most: int, at_least: int
) -> None:
    number = fitting(sizes, most, at_least)
    assert number >= min(at_least, len(sizes))
    assert number <= at_least or sum(sizes[:number]) <= most
    assert number == len(sizes) or sum(sizes[: number + 1]) > most


@given(st.lists(st.integers(0, 100)), st.integers(1, 300))
def test_calls_keep_the_order_and_stay_within_their_bytes(sizes: list[int], most: int) -> None:
    messages = [new(f"{place}", due=0, payload=b"x" * size) for place, size in enumerate(sizes)]
    parts = in_calls(messages, most)
    assert [message for part in parts for message in part] == messages
    assert all(part and (len(part) == 1 or total_size(part) <= most) for part in parts)


def test_a_size_is_that_of_payload_and_headers() -> None:
    assert size_of(new("a", due=0, payload=b"12345", headers={"ab": "c", "d": ""})) == 9


def filled(size: int) -> tuple[list[int], int]:
    """How many records of this size are read each time, and how many fit on a page."""
    page: Filling[NewMessage] = Filling(1_000, 1_000_000)
    message = new("m", due=0, payload=b"x" * size)
    numbers: list[int] = []
    while True:
        numbers.append(page.next_read(1_000))
        page.have_read(numbers[-1], size * numbers[-1])
        added = [page.add(message) for _ in range(numbers[-1])]
        if not all(added):
            return numbers, len(page.items)


def test_reads_grow_while_records_are_small_and_end_where_the_page_is_full() -> None:
    assert filled(100) == ([16, 128, 1_000], 1_000)
    assert filled(50_000) == ([16, 5], 20)
    assert filled(2_000_000) == ([16], 1)
