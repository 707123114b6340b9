"""Processes on one store know of each other by heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from penstock.flow.dead_groups import folded
from penstock.flow.fleet import ALIVE_MS, FORGET_MS, KEPT_MS, PERIOD_MS, QUIET_MS, SHOWN_MS, Fleet
from penstock.flow.observe import Observer
from penstock.flow.status import Status
from penstock.model.fleet import Heartbeat, ProcessName, Role, pack, unpack_all
from penstock.model.outcome import Dead, Retry, SendOutcome
from penstock.model.query import StoreFigures
from penstock.model.state import State
from penstock.model.status_view import Stats
from tests.unit.flow.rig import Engine

_marks = count()


def another(engine: Engine, observer: Observer | None = None, role: Role = "worker") -> Fleet:
    name = ProcessName("here", 7, str(next(_marks)))
    return Fleet(engine.opened, observer or Observer(), name=name, role=role, version="9.9")


async def look(engine: Engine) -> Stats:
    """What a process that only looks is told."""
    status = Status(engine.opened, another(engine, role="api"), {"default": "log://"}, version="1")
    return await status.stats()


async def kept(engine: Engine) -> Sequence[Heartbeat]:
    assert engine.opened.fleet is not None
    return await engine.opened.fleet.heartbeats()


async def test_figures_are_those_of_all_processes(engine: Engine) -> None:
    one, two = Observer(), Observer()
    one.count("released", "push", 3)
    one.late("push", [1, 1, 1])
    two.count("released", "push", 4)
    two.count("dead", "push", 1)
    two.late("push", [500])
    two.bound("cap", "blocked", 2)
    async with another(engine, one).joined(), another(engine, two).joined():
        await engine.clock.advance(PERIOD_MS)
        stats = await look(engine)
    assert stats.totals == {"released": 7, "dead": 1}
    assert stats.counts == {"push": {"released": 7, "dead": 1}}
    assert (stats.lateness["push"].count, stats.lateness["push"].max) == (4, 500)
    assert stats.policies == {"cap": {"allowed": 0, "deferred": 0, "blocked": 2, "shadowed": 0}}
    assert [process.role for process in stats.processes] == ["worker", "worker"]
    assert all(process.alive and process.version == "9.9" for process in stats.processes)


async def test_counts_that_the_store_shares_are_not_kept_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow count serves for fifty times as long, unless the store itself says for how long."""
    figures = engine.store.figures

    async def slowly(now: int) -> StoreFigures:
        engine.clock.jump(2_000)
        return await figures(now)

    monkeypatch.setattr(engine.store, "figures", slowly)
    shared = replace(engine.opened, figures_serve=10_000)
    status = Status(shared, another(engine, role="api"), {}, version="1")
    for number in range(4):
        assert (await status.stats()).states[State.SCHEDULED] == number
        await engine.schedule(delay="1d")


async def test_this_process_is_told_live_and_once(engine: Engine) -> None:
    observer = Observer()
    fleet = another(engine, observer, role="serve")
    status = Status(engine.opened, fleet, {}, version="1")
    async with fleet.joined(metrics="http://127.0.0.1:1/metrics"):
        await engine.clock.advance(PERIOD_MS)
        observer.count("accepted", "r", 5)
        stats = await status.stats()
    assert stats.totals == {"accepted": 5}
    (process,) = stats.processes
    assert (process.role, process.metrics) == ("serve", "http://127.0.0.1:1/metrics")


async def test_a_worker_tells_what_its_lanes_do(engine: Engine) -> None:
    fleet = another(engine, engine.observer)
    async with engine.working() as worker, fleet.joined(worker):
        worker.lanes["default"].in_flight = 2
        await engine.clock.advance(PERIOD_MS)
        worker.lanes["default"].in_flight = 0
        stats = await look(engine)
    route = stats.routes["default"]
    assert (route.in_flight, route.capacity, route.waiting_for_sink) == (2, 100, False)
    assert stats.processes[0].routes["default"].sink == "fake://"


async def test_a_route_only_a_worker_knows_has_that_workers_sink(engine: Engine) -> None:
    async with engine.working() as worker, another(engine).joined(worker):
        await engine.clock.advance(PERIOD_MS)
        status = Status(engine.opened, another(engine), {}, version="1")
        assert (await status.stats()).routes["default"].sink == "fake://"
        assert [route.name for route in await status.routes()] == ["default"]


async def test_failed_attempts_are_errors_of_their_route(engine: Engine) -> None:
    answers: dict[str, SendOutcome] = {"a": Retry("busy"), "b": Dead("no")}
    engine.sink.behave = lambda message: answers[message.id]
    for name in answers:
        await engine.schedule(id=name)
    fleet = another(engine, engine.observer)
    async with engine.working() as worker, fleet.joined(worker):
        await engine.clock.advance(100)
        stats = await Status(engine.opened, fleet, {}, version="1").stats()
    assert stats.routes["default"].errors == 2


async def test_what_a_stopped_process_counted_stays_in_the_totals(engine: Engine) -> None:
    observer = Observer()
    async with another(engine, observer).joined():
        await engine.clock.advance(PERIOD_MS)
        observer.count("accepted", "r", 7)
    stats = await look(engine)
    assert stats.totals == {"accepted": 7}
    assert [(process.alive, process.stopped) for process in stats.processes] == [(False, True)]
    await engine.clock.advance(SHOWN_MS)
    stats = await look(engine)
    assert (stats.totals, stats.processes) == ({"accepted": 7}, [])
    await engine.clock.advance(KEPT_MS)
    assert (await look(engine)).totals == {}


async def test_a_process_that_is_not_seen_any_more_serves_nothing(engine: Engine) -> None:
    async with engine.working() as worker, another(engine).joined(worker):
        await engine.clock.advance(PERIOD_MS)
        (last,) = await kept(engine)
    assert engine.opened.fleet is not None
    await engine.opened.fleet.beat(last)  # as if it had been killed: nobody told that it ended
    assert (await look(engine)).routes["default"].capacity == 100
    await engine.clock.advance(ALIVE_MS)
    stats = await look(engine)
    assert stats.routes["default"].capacity is None
    assert [(process.alive, process.stopped) for process in stats.processes] == [(False, False)]


async def test_one_that_lives_for_less_than_a_second_leaves_no_trace(engine: Engine) -> None:
    engine.clock.jump(PERIOD_MS - engine.clock.now() % PERIOD_MS)
    async with another(engine).joined():
        await engine.clock.advance(PERIOD_MS - 1)
    assert await kept(engine) == []


async def test_a_quiet_process_writes_less_often(engine: Engine) -> None:
    observer = Observer()
    moments = set()
    async with another(engine, observer).joined():
        for second in range(20):
            await engine.clock.advance(PERIOD_MS)
            moments |= {beat.seen for beat in await kept(engine)}
            if second >= 10:
                observer.count("accepted", "r")
    assert 10 * PERIOD_MS // QUIET_MS <= len(moments) - 10 <= 10 * PERIOD_MS // QUIET_MS + 1


async def test_entries_of_long_ago_are_dropped_from_the_store(engine: Engine) -> None:
    async with another(engine).joined():
        await engine.clock.advance(PERIOD_MS)
    assert len(await kept(engine)) == 1
    engine.clock.jump(KEPT_MS)
    async with another(engine).joined():
        await engine.clock.advance(FORGET_MS + PERIOD_MS)
        assert len(await kept(engine)) == 1


async def test_dead_letters_are_grouped_by_what_they_have_in_common(engine: Engine) -> None:
    engine.sink.behave = lambda message: Dead(
        "no such user" if message.id.startswith("x") else f"HTTP 500 for {message.id} in 12.5 ms"
    )
    for name in ("order-abc", "order-def", "x1"):
        await engine.schedule(id=name)
        await engine.clock.advance(1)
    async with engine.working():
        await engine.clock.advance(100)
    status = Status(engine.opened, another(engine), {}, version="1")
    groups = await status.dead_groups(None)
    assert [(group.error, group.count) for group in groups.items] == [
        ("HTTP # for # in # ms", 2),
        ("no such user", 1),
    ]
    assert groups.items[0].match == "HTTP"
    assert groups.items[0].oldest <= groups.items[0].newest
    assert not groups.truncated
    assert (await status.dead_groups("elsewhere")).items == []


def test_what_a_sink_answered_tells_groups_of_dead_letters_apart() -> None:
    gone = folded("127.0.0.1:40511 answered 410: no user 7", "m1")
    assert gone == "# answered 410: no user #"
    assert gone != folded("127.0.0.1:40511 answered 404: no user 7", "m2")


def test_a_heartbeat_of_an_unknown_version_is_left_out(engine: Engine) -> None:
    known = another(engine).own()
    assert unpack_all([b"\x81\xa2id\x01", pack(known), b"not msgpack"]) == [known]
