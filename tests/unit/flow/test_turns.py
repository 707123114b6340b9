"""Per-key order and per-key concurrency: no key is served out of turn, no key waits for another."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.backoff import Backoff
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome, Settlement
from penstock.model.route import KeyLimit, Route
from penstock.model.state import State
from penstock.stores.sqlite import SqliteStore, open_store
from penstock.testing.clock import ManualClock
from tests.unit.flow.rig import Engine

ORDERED = KeyLimit(1, ordered=True)


def keyed(engine: Engine, per_key: KeyLimit) -> None:
    route = Route(name="default", backoff=Backoff(1_000, 1_000), per_key=per_key)
    engine.routes["default"] = (route, engine.sink)


async def test_messages_of_a_key_go_out_one_at_a_time_in_the_order_of_due(engine: Engine) -> None:
    keyed(engine, ORDERED)
    engine.sink.max_batch = 1
    engine.sink.gate = asyncio.Event()
    for number, due in enumerate((3, 1, 2)):
        await engine.schedule(id=f"a{number}", key="ann", delay=due / 1000, priority=9 - number)
    await engine.schedule(id="b", key="bob", delay=0.004)
    async with engine.working():
        await engine.clock.advance(100)
        assert engine.sink.ids == ["a1", "b"]  # ann is busy, bob does not wait for her
        engine.sink.gate.set()
        await engine.clock.advance(100)
    assert engine.sink.ids == ["a1", "b", "a2", "a0"]


async def test_a_retry_holds_back_what_comes_after_it(engine: Engine) -> None:
    keyed(engine, ORDERED)
    outcomes: list[SendOutcome] = [Retry("503"), Retry("503"), DELIVERED]
    engine.sink.behave = lambda m: outcomes.pop(0) if m.id == "first" else DELIVERED
    await engine.schedule(id="first", key="ann")
    await engine.schedule(id="second", key="ann", delay=0.01)
    await engine.schedule(id="other", key="bob", delay=0.02)
    async with engine.working():
        await engine.clock.advance(5_000)
    assert engine.sink.ids == ["first", "other", "first", "first", "second"]


async def test_a_dead_message_makes_way(engine: Engine) -> None:
    keyed(engine, ORDERED)
    engine.sink.behave = lambda m: Dead("no") if m.id == "first" else DELIVERED
    await engine.schedule(id="first", key="ann")
    await engine.schedule(id="second", key="ann")
    async with engine.working():
        await engine.clock.advance(100)
    assert engine.sink.ids == ["first", "second"]


async def test_a_deferral_holds_back_what_comes_after_it(engine: Engine) -> None:
    keyed(engine, ORDERED)
    await engine.put_policies(
        brief={"kind": "cap", "scope": ["key"], "limit": 1, "window": "10s", "bypass": ["vip"]}
    )
    await engine.schedule(id="a", key="ann")
    await engine.schedule(id="b", key="ann", delay=0.01)
    await engine.schedule(id="c", key="ann", delay=0.02, labels={"class": "vip"})
    async with engine.working():
        await engine.clock.advance(5_000)
        assert engine.sink.ids == ["a"]
        await engine.clock.advance(6_000)
    assert engine.sink.ids == ["a", "b", "c"]


async def test_no_more_of_a_key_are_in_flight_than_the_route_allows(engine: Engine) -> None:
    keyed(engine, KeyLimit(3))
    engine.sink.gate = asyncio.Event()
    for number in range(10):
        await engine.schedule(id=f"a{number}", key="ann", delay=number / 1000)
    await engine.schedule(id="b", key="bob", delay=0.05)
    async with engine.working():
        await engine.clock.advance(1_000)
        assert engine.sink.ids == ["a0", "a1", "a2", "b"]
        engine.sink.gate.set()
        await engine.clock.advance(100)
    assert len(engine.sink.sent) == 11


async def test_a_busy_key_with_a_long_backlog_costs_others_nothing(engine: Engine) -> None:
    keyed(engine, ORDERED)
    store = engine.store
    assert isinstance(store, SqliteStore)
    for number in range(300):
        await engine.schedule(id=f"a{number:03d}", key="ann")
    now = engine.clock.now()
    first = await store.claim_keyed("default", 100, 30_000, now, ORDERED)
    assert [m.id for m in first.messages] == ["a000"]
    await engine.schedule(id="b", key="bob")
    second = await store.claim_keyed("default", 100, 30_000, now, ORDERED)
    assert [m.id for m in second.messages] == ["b"]
    assert second.next_due is None  # nobody else's turn until ann's is over


async def test_a_route_may_become_ordered_while_it_holds_messages(engine: Engine) -> None:
    for number in range(4):
        await engine.schedule(id=f"m{number}", key="ann", delay=number / 1000)
    keyed(engine, ORDERED)
    engine.sink.max_batch = 1
    async with engine.working():
        await engine.clock.advance(500)
    assert engine.sink.ids == ["m0", "m1", "m2", "m3"]


ENDS = st.sampled_from([State.DELIVERED, State.SCHEDULED, State.DEAD, None])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 30), ENDS, st.booleans()),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([ORDERED, KeyLimit(1), KeyLimit(2)]),
)
async def test_whatever_happens_no_key_is_over_its_number_and_everything_goes_out(
    steps: list[tuple[str, int, State | None, bool]], per_key: KeyLimit
) -> None:
    clock = ManualClock()
    store = (
        await open_store(
            "sqlite://", total_partitions=8, retention=86_400_000, retention_count=1000, clock=clock
        )
    ).messages
    assert isinstance(store, SqliteStore)
    engine = Engine(store.as_store(), clock)
    flying: dict[str, tuple[int, object]] = {}
    order: dict[str, list[str]] = defaultdict(list)
    number = 0

    async def take() -> None:
        claim = await store.claim_keyed("default", 10, 1_000, clock.now(), per_key)
        for message in claim.messages:
            assert message.due <= clock.now()
            flying[message.id] = (claim.token, message)
            order[message.key].append(message.id)
        for key in "ab":
            held = [1 for _, m in flying.values() if m.key == key]  # type: ignore[attr-defined]
            assert len(held) <= per_key.in_flight

    async def end(state: State) -> None:
        ended = [
            Settlement(
                message=message,  # type: ignore[arg-type]
                token=token,
                state=state,
                due=clock.now() + 7 if state is State.SCHEDULED else None,
                event="x",
            )
            for token, message in flying.values()
        ]
        await store.settle(ended, clock.now())
        flying.clear()

    for key, wait, state, add in steps:
        if add:
            await engine.schedule(id=f"m{number:03d}", key=key, delay=wait / 1000)
            number += 1
        clock.jump(wait)
        await take()
        if state is not None:
            await end(state)
        elif wait > 20:  # a crash: the leases run out
            clock.jump(1_000)
            await store.reap(clock.now(), 100)
            flying.clear()
    for _ in range(2 * number + 5):
        clock.jump(50)
        await end(State.DELIVERED)
        await take()
    figures = await store.figures(clock.now())
    route = figures.routes.get("default")
    assert route is None or route.scheduled == 0
    await store.close()
