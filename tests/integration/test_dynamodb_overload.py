"""A table that does not keep up: everything is late, and nothing else is wrong."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from penstock.model.errors import StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Settlement
from penstock.model.recurrence import RuleRow
from penstock.model.state import State
from penstock.ports.recurring import DueRules, RecurringStore, Swap
from penstock.ports.store import Store
from penstock.stores.dynamodb import TieredStore, open_store
from penstock.stores.dynamodb.address import parse_address
from penstock.stores.dynamodb.agenda import Agenda
from penstock.stores.dynamodb.gateway import (
    FEWEST_SLOTS,
    SLOW_SECONDS,
    WAY_SECONDS,
    Gateway,
    Slots,
    line,
    open_gateway,
)
from penstock.stores.dynamodb.lease import FIRST_CLAIM
from penstock.stores.dynamodb.near import Hint
from penstock.testing.clock import ManualClock
from penstock.testing.recurring_suite import row_of
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

DAY = 86_400_000
TABLE = "overload"
LEASE = 2_000
NUMBER = 400
PER_STATEMENT = 5
"""Milliseconds that the table takes to write an item."""


@pytest.fixture(scope="module")
def server(dynamodb_node: DynamoServer) -> Iterator[DynamoServer]:
    dynamodb_node.make_table(TABLE, shards=2)
    yield dynamodb_node
    dynamodb_node.empty(TABLE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(int(time.time()) * 1000 - DAY)


@pytest_asyncio.fixture
async def store(
    server: DynamoServer, redis_node: RedisServer, clock: ManualClock
) -> AsyncIterator[Store]:
    server.empty(TABLE)
    redis_node.flush()
    async with opened(server, redis_node, clock) as store:
        yield store


@asynccontextmanager
async def opened(
    server: DynamoServer, redis: RedisServer, clock: ManualClock | None = None
) -> AsyncIterator[Store]:
    store = await open_store(
        server.url(TABLE, redis.url),
        total_partitions=4,
        retention=DAY,
        retention_count=1_000,
        clock=clock,
    )
    try:
        yield store
    finally:
        await store.messages.close()


def slow_down(monkeypatch: pytest.MonkeyPatch, clock: ManualClock, kind: str, millis: int) -> None:
    """Let the clock go on by so many milliseconds for each statement or key of a kind of call."""
    call = Gateway.call

    async def slowly(self: Gateway, operation: str, **request: Any) -> Any:
        if operation == kind:
            clock.jump(millis * len(request.get("Statements", "1")))
        return await call(self, operation, **request)

    monkeypatch.setattr(Gateway, "call", slowly)


async def put_many(store: Store, number: int) -> None:
    now = store.clock.now()
    drafts = [
        NewMessage(id=f"m{n}", route="r", key="k", payload=b"1", due=now) for n in range(number)
    ]
    await store.messages.put(drafts, now)


async def claim_singly(store: Store, number: int) -> None:
    """Put and claim so many messages, each under a lease of its own."""
    await put_many(store, number)
    for _ in range(number):
        claim = await store.messages.claim("r", 1, LEASE, store.clock.now())
        assert len(claim.messages) == 1


def fail(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let every call of a kind fail."""
    call = Gateway.call

    async def failing(self: Gateway, operation: str, **request: Any) -> Any:
        if operation == kind:
            raise StoreUnavailable("the table is away")
        return await call(self, operation, **request)

    monkeypatch.setattr(Gateway, "call", failing)


async def test_no_claim_is_larger_than_its_lease_allows(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_many(store, NUMBER)
    slow_down(monkeypatch, clock, "batch_execute_statement", PER_STATEMENT)
    seen: list[str] = []
    while len(seen) < NUMBER:
        claim = await store.messages.claim("r", 500, LEASE, clock.now())
        # Not by the clock: a statement that the local server answers with "try again" counts twice.
        assert len(claim.messages) * PER_STATEMENT < LEASE // 2, "the send has half of the lease"
        assert {message.attempt for message in claim.messages} == {1}
        assert not await store.messages.reap(clock.now(), 500)
        seen += [message.id for message in claim.messages]
        ends = [Settlement(m, claim.token, State.DELIVERED, "delivered") for m in claim.messages]
        states = await store.messages.settle(ends, clock.now())
        assert set(states) == {State.DELIVERED}
    assert len(seen) == len(set(seen))


async def test_hints_of_messages_that_are_gone_allow_no_larger_claim(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store.messages, TieredStore)
    await put_many(store, NUMBER)
    slow_down(monkeypatch, clock, "batch_execute_statement", PER_STATEMENT)
    near = store.messages._session.near
    sizes: list[int] = []
    while sum(sizes) < NUMBER:
        claim = await store.messages.claim("r", 500, LEASE, clock.now())
        sizes.append(len(claim.messages))
        ends = [Settlement(m, claim.token, State.DELIVERED, "delivered") for m in claim.messages]
        await store.messages.settle(ends, clock.now())
        if len(sizes) == 1:
            # As a page of the index that was read before the claim and is added after it.
            await near.add([Hint(m.id, "r", 9, m.due - 1) for m in claim.messages[:90]])
    assert max(sizes) <= FIRST_CLAIM


async def test_a_table_that_keeps_up_is_asked_for_more_and_more(
    store: Store, clock: ManualClock
) -> None:
    await put_many(store, 4 * FIRST_CLAIM)
    sizes: list[int] = []
    while sum(sizes) < 4 * FIRST_CLAIM:
        claim = await store.messages.claim("r", 500, LEASE, clock.now())
        assert claim.stopped_at_bytes == (sum(sizes) + len(claim.messages) < 4 * FIRST_CLAIM)
        sizes.append(len(claim.messages))
    assert sizes[:2] == [FIRST_CLAIM, 2 * FIRST_CLAIM]


async def test_what_is_read_too_late_in_a_lease_is_not_leased(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_many(store, 3)
    with monkeypatch.context() as patch:
        slow_down(patch, clock, "put_item", LEASE)
        with pytest.raises(StoreUnavailable, match="none of them is leased"):
            await store.messages.claim("r", 500, LEASE, clock.now())
    assert not await store.messages.reap(clock.now() + LEASE, 500)
    claim = await store.messages.claim("r", 500, LEASE, clock.now())
    assert [message.attempt for message in claim.messages] == [1, 1, 1]


async def test_planters_share_what_is_due(
    store: Store, server: DynamoServer, redis_node: RedisServer, clock: ManualClock
) -> None:
    async with opened(server, redis_node, clock) as other:
        one, two = rules_of(store), rules_of(other)
        now = clock.now()
        rows = [row_of(f"r{number}", 1, now - number) for number in range(10)]
        assert all(await one.swap([Swap(row.id, 0, row) for row in rows]))
        first, second = await one.due(now, 6), await two.due(now, 6)
        assert [len(first.rows), len(second.rows)] == [6, 4]
        assert {row.id for row in (*first.rows, *second.rows)} == {row.id for row in rows}
        assert second.next_wake is not None, "when the other process may have died"
        # What the first one asks for again, it is given again; what it has planted is not due.
        assert await one.due(now, 6) == first
        done = [moved(row, now + DAY) for row in first.rows]
        assert all(await one.swap([Swap(row.id, 1, row) for row in done]))
        assert (await one.due(now, 6)).rows == ()


async def test_rules_of_a_planter_that_died_are_due_to_another(
    store: Store, server: DynamoServer, redis_node: RedisServer, clock: ManualClock
) -> None:
    async with opened(server, redis_node, clock) as other:
        now = clock.now()
        row = row_of("a", 1, now)
        assert await rules_of(store).swap([Swap("a", 0, row)]) == [True]
        assert (await rules_of(store).due(now, 5)).rows == (row,)
        await store.messages.close()
        for _ in itertools.count():
            if (await rules_of(other).due(now, 5)).rows == (row,):
                break


async def test_rules_of_a_planter_that_was_cancelled_are_due_to_another(
    server: DynamoServer, redis_node: RedisServer
) -> None:
    """The store of a worker stays open while its last sends end."""
    server.empty(TABLE)
    redis_node.flush()
    async with opened(server, redis_node) as store, opened(server, redis_node) as other:
        now = store.clock.now()
        row = row_of("a", 1, now)
        assert await rules_of(store).swap([Swap("a", 0, row)]) == [True]
        taken = asyncio.Event()

        async def plant() -> None:
            assert (await rules_of(store).due(now, 5)).rows == (row,)
            taken.set()
            await asyncio.Event().wait()

        planter = asyncio.create_task(plant())
        await taken.wait()
        planter.cancel()
        for _ in range(600):
            if found := (await rules_of(other).due(now, 5)).rows:
                break
            await asyncio.sleep(0.05)
        assert found == (row,)


async def test_rules_are_held_back_for_as_long_as_their_planter_takes(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    row = row_of("a", 1, now)
    assert await rules_of(store).swap([Swap("a", 0, row)]) == [True]
    renewed = asyncio.Semaphore(0)
    hold = Agenda.hold

    async def seen(self: Agenda, until: int) -> bool:
        is_held = await hold(self, until)
        assert is_held
        renewed.release()
        return is_held

    monkeypatch.setattr(Agenda, "hold", seen)
    assert (await rules_of(store).due(now, 5)).rows == (row,)
    for _ in range(3):
        await renewed.acquire()


async def test_a_redis_that_is_emptied_is_filled_from_the_table(
    store: Store, redis_node: RedisServer, clock: ManualClock
) -> None:
    now = clock.now()
    rows = (row_of("a", 1, now - 1), row_of("b", 1, now))
    assert all(await rules_of(store).swap([Swap(row.id, 0, row) for row in rows]))
    await put_many(store, 1)
    (message,) = (await store.messages.claim("r", 1, LEASE, now)).messages
    redis_node.flush()
    assert (await rules_of(store).due(now, 5)).rows == rows
    clock.jump(LEASE)
    (reaped,) = await store.messages.reap(clock.now(), 5)
    assert reaped.id == message.id


async def test_ended_leases_found_in_the_table_are_reaped_in_as_many_calls_as_it_takes(
    store: Store, redis_node: RedisServer, clock: ManualClock
) -> None:
    await claim_singly(store, 5)
    redis_node.flush()
    clock.jump(LEASE)
    for _ in range(5):
        (reaped,) = await store.messages.reap(clock.now(), 1)
        assert reaped.state is State.SCHEDULED
    assert not await store.messages.reap(clock.now(), 1)


async def test_leases_that_end_after_redis_was_emptied_are_reaped_at_their_end(
    store: Store, redis_node: RedisServer, clock: ManualClock
) -> None:
    await claim_singly(store, 2)
    redis_node.flush()
    assert not await store.messages.reap(clock.now(), 5)
    clock.jump(LEASE)
    assert len(await store.messages.reap(clock.now(), 5)) == 2


async def test_a_reap_that_only_asks_whether_the_table_answers_reads_it_for_nobody(
    store: Store, redis_node: RedisServer, clock: ManualClock
) -> None:
    await claim_singly(store, 1)
    redis_node.flush()
    clock.jump(LEASE)
    assert not await store.messages.reap(0, 1)
    assert len(await store.messages.reap(clock.now(), 5)) == 1


async def test_a_table_that_was_not_read_to_its_end_is_read_again(
    store: Store,
    redis_node: RedisServer,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await claim_singly(store, 1)
    redis_node.flush()
    clock.jump(LEASE)
    with monkeypatch.context() as patch:
        fail(patch, "query")
        with pytest.raises(StoreUnavailable):
            await store.messages.reap(clock.now(), 5)
    assert len(await store.messages.reap(clock.now(), 5)) == 1


async def test_an_agenda_that_is_wrong_is_corrected(store: Store, clock: ManualClock) -> None:
    assert isinstance(store.messages, TieredStore)
    now = clock.now()
    rules, agenda = rules_of(store), store.messages._session.near.agenda("rules")
    later = row_of("later", 1, now + 5_000)
    assert await rules.swap([Swap("later", 0, later)]) == [True]
    await agenda.put({"later": now - 1, "gone": now - 1})
    for _ in range(2):
        assert await rules.due(now, 5) == DueRules((), later.wake)


async def test_fewer_calls_are_under_way_while_answers_are_slow() -> None:
    slots = Slots(32)
    slots.ended(0, SLOW_SECONDS / 100, answered=True)
    for number in range(100):
        slots.ended(number, number + 2 * SLOW_SECONDS, answered=True)
    assert slots.limit == FEWEST_SLOTS
    for number in range(100, 2_000):
        slots.ended(number, number + SLOW_SECONDS / 10, answered=True)
    assert slots.limit == 32


async def test_a_server_far_away_is_not_taken_for_a_slow_one() -> None:
    slots = Slots(32)
    for number in range(100):
        slots.ended(number, number + 2 * SLOW_SECONDS, answered=True)
    assert slots.limit == 32


FAR = 0.3
"""Seconds that a call to a server far away takes."""


async def test_a_call_that_was_not_answered_says_nothing_of_the_way() -> None:
    now = 0.0
    slots = Slots(32, lambda: now)

    async def call(seconds: float, end: type[BaseException] | None = None) -> None:
        nonlocal now
        async with slots.one():
            now += seconds
            if end is not None:
                raise end

    for end in (ConnectionRefusedError, asyncio.CancelledError):
        with pytest.raises(end):
            await call(0.001, end)
    for _ in range(100):
        await call(FAR)
    assert slots.limit == 32


async def test_calls_that_are_not_answered_for_long_make_room() -> None:
    slots = Slots(32)
    for number in range(100):
        slots.ended(number, number + 10, answered=False)
    assert slots.limit == FEWEST_SLOTS
    for number in range(100, 2_000):
        slots.ended(number, number + 0.001, answered=False)
    assert slots.limit == FEWEST_SLOTS


async def test_a_way_that_has_become_longer_is_noticed() -> None:
    slots = Slots(32)
    slots.ended(0, 0.001, answered=True)
    for number in range(10):
        slots.ended(number, number + FAR, answered=True)
    assert slots.limit == FEWEST_SLOTS
    for number in range(10, 2 * int(WAY_SECONDS) + 1_000):
        slots.ended(number, number + FAR, answered=True)
    assert slots.limit == 32


async def test_a_server_that_is_slow_for_long_is_not_taken_for_one_far_away() -> None:
    slots = Slots(32)
    for number in range(3 * int(WAY_SECONDS)):
        slots.ended(number, number + 2, answered=True)
    assert slots.limit == FEWEST_SLOTS


async def test_an_unmet_condition_is_an_answer(server: DynamoServer) -> None:
    gateway = await open_gateway(parse_address(server.url(TABLE, "redis://localhost")))
    gateway._slots._limit = 1.0
    for _ in range(5):
        answer = await gateway.call(
            "delete_item",
            TableName=TABLE,
            Key={"pk": {"S": "nobody"}},
            ConditionExpression="attribute_exists(pk)",
        )
        assert "Refused" in answer.reply
    assert gateway._slots.limit > 1
    await gateway.close()


async def test_an_urgent_call_waits_for_no_connection() -> None:
    """A pool that has a connection for each slot only would let it wait there."""
    begun = asyncio.Queue[None]()
    healed = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        begun.put_nowait(None)
        await healed.wait()
        return web.json_response({}, content_type="application/x-amz-json-1.0")

    async with TestServer(application(answer)) as hanging:
        address = parse_address(
            f"dynamodb+redis://key:secret@127.0.0.1:{hanging.port}/{TABLE}"
            "?redis=redis://localhost&max_connections=2&timeout=60s"
        )
        gateway = await open_gateway(address)
        async with asyncio.TaskGroup() as group:
            for urgent in (False, False, False, True):
                group.create_task(gateway.call("list_tables", urgent=urgent))
            for _ in range(3):
                async with asyncio.timeout(10):
                    await begun.get()
            healed.set()
        await gateway.close()


async def test_slots_are_handed_over_in_line() -> None:
    slots = Slots(1)
    order: list[int] = []
    begun = asyncio.Event()

    async def call(number: int) -> None:
        async with slots.one():
            order.append(number)
            begun.set()
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(call(number)) for number in range(5)]
    await begun.wait()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 3, 4]
    async with slots.one():
        pass


async def test_lines_take_turns() -> None:
    slots = Slots(1)
    order: list[str] = []

    async def call(name: str) -> None:
        async with slots.one():
            order.append(name)

    async with asyncio.TaskGroup() as group, slots.one():
        with line("put"):
            for _ in range(3):
                group.create_task(call("put"))
        with line("claim"):
            group.create_task(call("claim"))
        await asyncio.sleep(0)
    assert order == ["put", "claim", "put", "put"]


async def test_what_adds_work_leaves_a_slot_to_what_gets_it_done() -> None:
    slots = Slots(2)
    finished: list[str] = []
    hangs = asyncio.Event()

    async def put() -> None:
        with line("put"):
            async with slots.one():
                await hangs.wait()
        finished.append("put")

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(put())
        await asyncio.sleep(0)
        for _ in range(3):
            with line("claim"):
                async with slots.one():
                    finished.append("claim")
        hangs.set()
    assert finished == ["claim"] * 3 + ["put"] * 3


async def test_an_urgent_call_waits_for_no_other() -> None:
    slots = Slots(1)
    async with slots.one(), slots.one(urgent=True):
        pass


def application(answer: Callable[[web.Request], Awaitable[web.Response]]) -> web.Application:
    app = web.Application()
    app.router.add_post("/", answer)
    return app


def rules_of(store: Store) -> RecurringStore:
    assert store.recurring is not None
    return store.recurring


def moved(row: RuleRow, wake: int) -> RuleRow:
    return row_of(row.id, 2, wake)
