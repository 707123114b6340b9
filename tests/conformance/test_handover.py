"""Messages move between any two stores: each is in one of them, whenever a copy is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import permutations
from typing import Any, TypeAlias

import pytest

from penstock.flow.backup import restore, saved
from penstock.flow.handover import PARKED, Copied, Handover
from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.model.message import Labels, Message
from penstock.model.outcome import Action, Amendment
from penstock.model.policy import Cap, Scope, Suppression
from penstock.model.query import Filter
from penstock.model.recurrence import Rule, RuleRow, aimed
from penstock.model.state import State
from penstock.ports.recurring import Swap
from penstock.ports.store import MessageStore, Store
from penstock.testing.store_cases.base import ending, new
from penstock.testing.store_harness import StoreHarness
from systems.servers.dynamodb import DynamoServer
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisServer
from tests.conformance.dynamodb_harness import TABLE, TieredHarness
from tests.conformance.memory_harness import MemoryHarness
from tests.conformance.postgres_harness import PostgresHarness
from tests.conformance.redis_harness import RedisHarness
from tests.conformance.sqlite_harness import SqliteHarness

KINDS = ("memory", "sqlite", "redis", "dynamodb", "postgres")
HOUR = 3_600_000
Make: TypeAlias = Callable[[str], StoreHarness]
PENDING = (State.SCHEDULED, State.LEASED, State.DEAD)


@pytest.fixture(scope="module")
def second_redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Make:
    """A harness by the name of its store; servers are started when one is asked for."""

    fixture = request.getfixturevalue
    if "dynamodb" in request.node.name:
        fixture("dynamodb_node").make_table(TABLE)  # in a loop of its own, so before the test's

    def made(kind: str) -> StoreHarness:
        if kind == "memory":
            return MemoryHarness()
        if kind == "sqlite":
            return SqliteHarness()
        if kind == "redis":
            redis: RedisServer = fixture("redis_node")
            return RedisHarness(redis)
        if kind == "dynamodb":
            dynamodb: DynamoServer = fixture("dynamodb_node")
            beside: RedisServer = fixture("second_redis")
            return TieredHarness(dynamodb, beside)
        postgres: PostgresServer = fixture("postgres")
        return PostgresHarness(postgres)

    return made


@asynccontextmanager
async def two(make: Make, source: str, target: str) -> AsyncIterator[tuple[Store, Store]]:
    harnesses = make(source), make(target)
    stores = [await harness.open() for harness in harnesses]
    try:
        yield stores[0], stores[1]
    finally:
        for store, harness in zip(stores, harnesses, strict=True):
            await store.close()
            await harness.close()


async def copy(source: Store, target: Store) -> Copied:
    return await Handover(source, target, lambda _: None).run(wait=0)


async def pending(store: Store) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for state in PENDING:
        page = await store.messages.search(Filter(state=state), None, 1_000)
        assert page.next is None
        found |= {message.id: message for message in page.items}
    return found


async def fill(store: Store) -> dict[str, Message]:
    """Messages of every kind, a dead one, rules, policies and a paused route."""
    messages, now = store.messages, store.clock.now()
    await messages.put(
        [
            new("plain", due=now + HOUR),
            new("far", due=now + 9_000 * HOUR, priority=9, key="ann", expires=now + 9_999 * HOUR),
            new("bytes", due=now + HOUR, payload=b"\x00\xff", content_type="text/plain"),
            new("rich", due=now + HOUR, headers={"a": "b"}, labels=Labels(channel="push")),
            new("topic", due=now + HOUR, topic="orders.new", route="other"),
            new("poison", due=now),
        ],
        now,
    )
    claim = await messages.claim("r", 10, HOUR, now)
    assert [m.id for m in claim.messages] == ["poison"]
    await messages.settle(
        [ending(m, claim.token, State.DEAD, error="no such user") for m in claim.messages], now
    )
    await messages.pause("other", True)
    assert store.policies is not None
    await store.policies.put_policy("daily", Cap(scope=(Scope.KEY,), limit=2, window="24h"))
    await store.policies.put_suppression("optout", Suppression(keys=("bob", "eve"), legal=True))
    assert store.recurring is not None
    row = RuleRow(id="report", rule=Rule(cron="0 9 * * *"), changed=now, cursor=now)
    assert await store.recurring.swap([Swap("report", 0, aimed(row))]) == [True]
    return await pending(store)


def content(messages: dict[str, Message]) -> dict[str, tuple[object, ...]]:
    return {
        m.id: (
            *(m.route, m.key, m.payload, m.content_type, m.headers, m.due, m.expires),
            *(m.priority, m.labels, m.topic, m.state, m.last_error),
        )
        for m in messages.values()
    }


async def rules(store: Store) -> list[tuple[str, int | None]]:
    assert store.recurring is not None
    return [(row.id, row.wake) for row in await store.recurring.page(None, 10)]


async def assert_complete(store: Store, before: dict[str, Message]) -> None:
    assert content(await pending(store)) == content(before)
    assert await store.messages.paused() == {"other"}
    assert store.policies is not None
    book = await store.policies.book()
    assert list(book.policies) == ["daily"]
    suppression = await store.policies.suppression("optout")
    assert suppression == Suppression(keys=("bob", "eve"), legal=True)
    assert [name for name, _ in await rules(store)] == ["report"]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [*permutations(KINDS, 2), ("postgres",) * 2])
async def test_everything_pending_moves_between_any_two_stores(
    make: Make, source: str, target: str
) -> None:
    async with two(make, source, target) as (here, there):
        before = await fill(here)
        wakes = await rules(here)
        copied = await copy(here, there)
        assert (copied.moved, copied.dead, copied.known, copied.rules) == (6, 1, 0, 1)
        await assert_complete(there, before)
        assert await rules(there) == wakes
        assert await pending(here) == {}
        assert await rules(here) == []
        again = await here.messages.put([new("plain", due=0)], here.clock.now())
        assert again[0].duplicate, "the source still knows the id"


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("redis", "postgres"), ("postgres", "sqlite")])
async def test_a_backup_is_restored_into_any_store(make: Make, source: str, target: str) -> None:
    async with two(make, source, target) as (here, there):
        before = await fill(here)
        records = [record async for batch in saved(here) for record in batch]
        done = await restore(there, records, lambda _: None)
        assert done.put["message"] == 6
        await assert_complete(there, before)
        assert content(await pending(here)) == content(before), "the store itself is as it was"
        again = await restore(there, records, lambda _: None)
        assert not any(again.put.values())


class Dying:
    """A part of a store whose process is killed at a certain call that writes."""

    def __init__(self, part: Any, calls: Calls) -> None:
        self._part = part
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)
        if name not in {"put", "amend", "swap"}:
            return method

        async def call(*args: Any) -> Any:
            self._calls.begin()
            done = await method(*args)
            self._calls.end()
            return done

        return call


class Calls:
    """Dies before or after the call of a number."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.number = number
        self._after = after

    def begin(self) -> None:
        self.number -= 1
        if self.number == 0 and not self._after:
            raise StoreUnavailable("killed before")

    def end(self) -> None:
        if self.number == 0 and self._after:
            raise StoreUnavailable("killed after")

    def of(self, store: Store) -> Store:
        return replace(
            store, messages=Dying(store.messages, self), recurring=Dying(store.recurring, self)
        )


@pytest.mark.parametrize("after", [False, True])
async def test_a_copy_that_was_killed_anywhere_goes_on_and_nothing_is_in_both(
    make: Make, *, after: bool
) -> None:
    number = killed = 1
    while killed:
        async with two(make, "sqlite", "memory") as (here, there):
            before = await fill(here)
            calls = Calls(number, after=after)
            try:
                await Handover(calls.of(here), calls.of(there), lambda _: None).run(wait=0)
                killed = 0
            except StoreUnavailable:
                live = {m.id for m in (await pending(here)).values() if m.due < PARKED}
                dead = {m.id for m in (await pending(there)).values() if m.state is State.DEAD}
                assert live.isdisjoint(set(await pending(there)) - dead), "it would be sent twice"
                alive = {name for name, wake in await rules(here) if wake != PARKED}
                assert alive.isdisjoint(name for name, _ in await rules(there))
            await copy(here, there)
            await assert_complete(there, before)
            assert await pending(here) == {}
            assert await rules(here) == []
        number += 1
    assert number > 7, "each call of every step"


async def test_what_is_being_sent_stays_until_its_lease_has_ended(make: Make) -> None:
    async with two(make, "memory", "sqlite") as (here, there):
        now = here.clock.now()
        await here.messages.put([new("busy", due=now), new("idle", due=now + HOUR)], now)
        claim = await here.messages.claim("r", 1, 0, now)
        held = await Handover(here, there, lambda _: None).run(wait=0)
        assert (held.moved, held.being_sent) == (1, 1)
        assert set(await pending(there)) == {"idle"}
        assert len(claim.messages) == 1
        lost = await Handover(here, there, lambda _: None).run(wait=1)
        assert (lost.moved, lost.being_sent) == (1, 0)
        assert set(await pending(there)) == {"idle", "busy"}


class Meddling:
    """A source in which a caller changes a message at the moment that the target has it."""

    def __init__(self, messages: MessageStore, amendment: Amendment) -> None:
        self._messages = messages
        self._amendment: Amendment | None = amendment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

    async def amend(self, amendments: list[Amendment], now: int) -> Any:
        if amendments[0].action is Action.CANCEL and self._amendment is not None:
            change, self._amendment = self._amendment, None
            await self._messages.amend([change], now - 1)
        return await self._messages.amend(amendments, now)


async def test_a_change_in_the_source_meanwhile_reaches_the_target(make: Make) -> None:
    async with two(make, "sqlite", "memory") as (here, there):
        now = here.clock.now()
        await here.messages.put([new("m", due=now + HOUR)], now)
        later = Amendment(action=Action.RESCHEDULE, id="m", due=now + 2 * HOUR)
        meddled: Any = Meddling(here.messages, later)
        await copy(replace(here, messages=meddled), there)
        assert (await pending(there))["m"].due == now + 2 * HOUR
        assert await pending(here) == {}


async def test_a_cancel_in_the_source_meanwhile_reaches_the_target(make: Make) -> None:
    async with two(make, "sqlite", "memory") as (here, there):
        now = here.clock.now()
        await here.messages.put([new("m", due=now + HOUR)], now)
        meddled: Any = Meddling(here.messages, Amendment(action=Action.CANCEL, id="m"))
        copied = await copy(replace(here, messages=meddled), there)
        (message,) = await there.messages.find(["m"])
        assert message is not None
        assert (message.state, copied.moved) == (State.CANCELLED, 0)


async def test_what_the_target_does_not_take_stays_in_the_source(make: Make) -> None:
    async with two(make, "memory", "sqlite") as (here, there):
        now = here.clock.now()
        large = new("large", due=now + HOUR, payload=bytes(20_000))
        await here.messages.put([large, new("small", due=now + HOUR)], now)
        copied = await copy(here, replace(there, max_message=10_000))
        assert (copied.moved, copied.too_large) == (1, ["large"])
        assert (await pending(here))["large"].due == now + HOUR


async def test_a_store_is_not_copied_into_itself(make: Make) -> None:
    async with two(make, "memory", "sqlite") as (here, _):
        with pytest.raises(ConfigError, match="same store"):
            Handover(here, here, lambda _: None)
