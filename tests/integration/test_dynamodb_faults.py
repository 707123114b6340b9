"""The tiered store when one of its halves is away, forgets, throttles or fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from penstock.model import lifecycle
from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Action, Amendment, Answer, Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.dynamodb import TieredStore, init_store, open_store
from penstock.stores.dynamodb.gateway import Gateway
from penstock.stores.dynamodb.items import Item, Lease, lease_item
from penstock.stores.dynamodb.lease import AGAIN_MS
from penstock.stores.dynamodb.near import Hint, Taken
from penstock.testing.clock import ManualClock
from penstock.testing.proxy import Proxy
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer
from tests.servers.dynamodb_proxy import DynamoProxy

pytestmark = pytest.mark.slow

MINUTE, DAY = 60_000, 86_400_000
LEASE = 60_000
TABLE = "faults"

_names = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server(dynamodb_node: DynamoServer) -> Iterator[DynamoServer]:
    dynamodb_node.make_table(TABLE, shards=2)
    yield dynamodb_node
    dynamodb_node.empty(TABLE)


@pytest.fixture
def clock() -> ManualClock:
    """Long ago, so that it can jump by days and still be behind Redis."""
    return ManualClock(int(time.time()) * 1000 - 60 * DAY)


@pytest_asyncio.fixture
async def proxy(server: DynamoServer) -> AsyncIterator[DynamoProxy]:
    async with DynamoProxy(server.port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def redis_way(redis_node: RedisServer) -> AsyncIterator[Proxy]:
    redis_node.flush()
    async with Proxy("127.0.0.1", redis_node.port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def store(
    server: DynamoServer, proxy: DynamoProxy, redis_way: Proxy, clock: ManualClock
) -> AsyncIterator[TieredStore]:
    server.empty(TABLE)
    opened = await opened_store(server, proxy.port, redis_way.port, clock)
    yield opened
    proxy.heal()
    redis_way.refuse(False)
    await opened.close()


async def opened_store(
    server: DynamoServer, port: int, redis: int, clock: ManualClock, **options: object
) -> TieredStore:
    options = {"timeout": "20s", "figures": "0s", **options}
    url = server.url(TABLE, f"redis://127.0.0.1:{redis}/0", port, **options)
    store = (
        await open_store(url, total_partitions=4, retention=DAY, retention_count=1_000, clock=clock)
    ).messages
    assert isinstance(store, TieredStore)
    return store


def messages(number: int, due: int, route: str = "r") -> list[NewMessage]:
    return [
        NewMessage(id=name, route=route, key=name, payload=b"1", due=due)
        for name in itertools.islice(_names, number)
    ]


async def claimed(store: TieredStore, limit: int = 100) -> list[str]:
    claim = await store.claim("r", limit, LEASE, store.clock.now())
    return sorted(message.id for message in claim.messages)


async def claimed_in_the_end(store: TieredStore, number: int) -> list[str]:
    """What is claimed until so many are, or it takes too long."""
    found: list[str] = []
    for _ in range(3_000):
        with contextlib.suppress(StoreUnavailable):  # a busy machine's Redis may answer late
            found += await claimed(store)
        if len(found) >= number:
            break
        await asyncio.sleep(0.1)
    return sorted(found)


async def test_the_far_future_is_not_in_redis_until_it_comes_near(
    store: TieredStore, redis_node: RedisServer, clock: ManualClock
) -> None:
    far = messages(5, clock.now() + 10 * DAY)
    near = messages(3, clock.now() + MINUTE)
    await store.put([*far, *near], clock.now())
    held = sum(int(redis_node.cli("ZCARD", key)) for key in lanes(redis_node))
    assert held == 3
    clock.jump(10 * DAY)
    assert await claimed_in_the_end(store, 8) == sorted(m.id for m in [*far, *near])


def lanes(redis: RedisServer) -> list[str]:
    return [
        key for key in redis.cli("--scan", "--pattern", "penstock:near:*:q:*").split("\n") if key
    ]


async def test_a_redis_that_was_emptied_is_filled_again(
    store: TieredStore, redis_node: RedisServer, clock: ManualClock
) -> None:
    put = messages(60, clock.now() + 2 * MINUTE)
    await store.put(put, clock.now())
    await store.pause("other", True)
    assert await claimed(store) == []
    redis_node.flush()
    clock.jump(3 * MINUTE)
    assert await claimed_in_the_end(store, 60) == sorted(m.id for m in put)
    await store.put(messages(1, clock.now(), "other"), clock.now())
    assert (await store.claim("other", 1, LEASE, clock.now())).messages == ()


async def test_what_is_accepted_while_redis_is_away_is_released_when_it_is_back(
    store: TieredStore, redis_way: Proxy, clock: ManualClock
) -> None:
    redis_way.refuse()
    put = messages(20, clock.now())
    assert len(await store.put(put, clock.now())) == 20
    with pytest.raises(StoreUnavailable):
        await claimed(store)
    redis_way.refuse(False)
    found: list[str] = []
    for _ in range(3_000):
        with contextlib.suppress(StoreUnavailable):
            found += await claimed(store)
        if len(found) >= 20:
            break
        await asyncio.sleep(0.1)
    assert sorted(found) == sorted(m.id for m in put)


async def test_a_store_opens_and_accepts_without_redis(
    server: DynamoServer, redis_way: Proxy, redis_node: RedisServer, clock: ManualClock
) -> None:
    server.empty(TABLE)
    redis_way.refuse()
    store = await opened_store(server, server.port, redis_way.port, clock)
    put = messages(1, clock.now())
    assert [r.id for r in await store.put(put, clock.now())] == [put[0].id]
    assert "away" in (await store.check())["redis"]
    assert await store.heartbeats() == []  # figures are told all the same
    assert (await store.forecast(clock.now())).minutes[0].total() == 1
    await store.close()
    again = await opened_store(server, server.port, redis_node.port, clock)
    assert await claimed_in_the_end(again, 1) == [put[0].id]
    await again.close()


async def test_without_dynamodb_nothing_is_accepted_and_nothing_is_released(
    store: TieredStore, proxy: DynamoProxy, clock: ManualClock
) -> None:
    put = messages(7, clock.now())
    await store.put(put, clock.now())
    store._gateway._timeout = 0.5  # asked again for no longer than this
    proxy.fault("away")
    with pytest.raises(StoreUnavailable) as told:
        await store.put(messages(1, clock.now()), clock.now())
    assert told.value.retry_after > 0
    with pytest.raises(StoreUnavailable):
        await claimed(store)
    proxy.heal()
    found: list[str] = []
    for _ in range(3_000):
        with contextlib.suppress(StoreUnavailable):  # the breaker has not tried again yet
            found += await claimed(store)
        if len(found) >= 7:
            break
        await asyncio.sleep(0.1)
    assert sorted(found) == sorted(m.id for m in put)


async def test_throttling_and_failures_in_between_change_no_answer(
    store: TieredStore, proxy: DynamoProxy, clock: ManualClock
) -> None:
    proxy.fault("throttle", "fail", "fail after", share=0.2)
    put = messages(60, clock.now())
    receipts = await store.put(put, clock.now())
    assert not any(receipt.duplicate for receipt in receipts)
    claim = await store.claim("r", 100, LEASE, clock.now())
    assert len(claim.messages) == 60
    ends = [
        Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
        for m in claim.messages[:40]
    ]
    assert await store.settle(ends, clock.now()) == [State.DELIVERED] * 40
    asked = [Amendment(action=Action.CANCEL, id=m.id) for m in claim.messages]
    answers = await store.amend(asked, clock.now())
    assert {a.answer for a in answers} == {Answer.RELEASED}
    assert proxy.hurt > 0


async def test_constant_throttling_is_told_as_such(
    store: TieredStore, proxy: DynamoProxy, clock: ManualClock
) -> None:
    store._gateway._timeout = 0.5  # asked again for no longer than this
    proxy.fault("throttle")
    with pytest.raises(StoreUnavailable, match="throttles"):
        await store.put(messages(1, clock.now()), clock.now())


async def test_a_hydrator_that_dies_in_the_middle_of_a_bucket_leaves_it_to_another(
    store: TieredStore, server: DynamoServer, redis_way: Proxy, clock: ManualClock
) -> None:
    put = messages(40, clock.now() + DAY)
    await store.put(put, clock.now())
    clock.jump(DAY)
    # The first one brings a part of the bucket and is gone, with the lead still in its hands.
    add, calls = store._session.near.add, 0

    async def add_once(*args: object, **kwargs: object) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise asyncio.CancelledError
        await add(*args, **kwargs)  # type: ignore[arg-type] # passed on as it came

    store._session.near.add = add_once  # type: ignore[method-assign] # it dies here
    with pytest.raises(asyncio.CancelledError):
        await store._hydrator.step()
    assert calls > 1
    other = await opened_store(server, server.port, redis_way.port, clock)
    assert await claimed_in_the_end(other, 40) == sorted(m.id for m in put)
    await other.close()


async def test_messages_put_unadmitted_wait_for_their_admission(
    store: TieredStore, clock: ManualClock
) -> None:
    put = messages(3, clock.now())
    await store.put_unadmitted(put, clock.now())
    assert await store._session.near.take("r", 10, clock.now()) == Taken([], None, lost=True)
    assert await store.admit([*(m.id for m in put), "nobody"], clock.now()) == 3
    assert await store.admit([m.id for m in put], clock.now()) == 3
    assert await claimed(store) == sorted(m.id for m in put)


async def test_a_table_is_made_on_request_and_never_by_looking(
    server: DynamoServer, redis_node: RedisServer
) -> None:
    url = server.url("made-by-hand", redis_node.url)

    async def look(partitions: int = 4) -> MessageStore:
        return (
            await open_store(url, total_partitions=partitions, retention=DAY, retention_count=10)
        ).messages

    with pytest.raises(ConfigError, match="store init"):
        await look()
    assert "made" in await init_store(url)
    assert "is there" in await init_store(url)
    store = await look()
    assert "ACTIVE" in (await store.check())["table"]
    await store.close()
    with pytest.raises(ConfigError, match="cannot be reduced to"):
        await look(2)


async def test_a_start_makes_the_table_where_the_url_says_so(
    server: DynamoServer, redis_way: Proxy, clock: ManualClock
) -> None:
    url = server.url("made-at-start", f"redis://127.0.0.1:{redis_way.port}/0", create="true")
    for _ in range(2):
        store = await open_store(
            url, total_partitions=4, retention=DAY, retention_count=10, clock=clock
        )
        assert "ACTIVE" in (await store.messages.check())["table"]
        await store.messages.close()
    server.drop("made-at-start")


async def test_a_start_reads_the_same_however_much_the_table_has(
    server: DynamoServer, redis_way: Proxy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    call = Gateway.call

    async def noted(gateway: Gateway, operation: str, **request: Any) -> Any:
        called.append(operation)
        return await call(gateway, operation, **request)

    monkeypatch.setattr(Gateway, "call", noted)
    store = await opened_store(server, server.port, redis_way.port, clock)
    await store.close()
    assert set(called) == {"batch_get_item", "update_item"}, "items by their keys"


async def test_ids_that_redis_gave_and_that_never_came_are_given_again(
    store: TieredStore, redis_way: Proxy, clock: ManualClock
) -> None:
    await store.claim("r", 1, LEASE, clock.now())  # everything is open and known
    assert store._hydrating is not None
    store._hydrating.cancel()  # once Redis answers again it would bring back all that is near
    put = messages(30, clock.now())
    await store.put(put, clock.now())
    redis_way.lose_answers(100)
    with pytest.raises(StoreUnavailable):
        await store._session.near.take("r", 20, clock.now())
    redis_way.lose_answers(0)
    await answering(store)
    again = await store._session.near.take("r", 20, clock.now())
    rest = await store._session.near.take("r", 20, clock.now())
    assert (len(again.hints), len(rest.hints)) == (20, 10)
    assert sorted(again.ids + rest.ids) == sorted(m.id for m in put)


async def test_a_claim_whose_ids_never_came_is_asked_for_again(
    store: TieredStore, redis_way: Proxy, clock: ManualClock
) -> None:
    await store.claim("r", 1, LEASE, clock.now())
    put = messages(10, clock.now())
    await store.put(put, clock.now())
    redis_way.lose_answers(100)
    with pytest.raises(StoreUnavailable):
        await store.claim("r", 100, LEASE, clock.now())
    redis_way.lose_answers(0)
    await answering(store)
    claim = await store.claim("r", 100, LEASE, clock.now())
    assert sorted(m.id for m in claim.messages) == sorted(m.id for m in put)
    assert {m.attempt for m in claim.messages} == {1}


async def answering(store: TieredStore) -> None:
    """Wait until Redis answers again, bounded."""
    async with asyncio.timeout(300):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store._session.near.noted("figures")
                return
            await asyncio.sleep(0.1)


async def test_a_claim_through_many_hints_that_lead_nowhere_writes_a_small_lease(
    store: TieredStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.claim("r", 1, LEASE, clock.now())
    (real,) = messages(1, clock.now())
    await store.put([real], clock.now())
    stale = [Hint(f"gone-{number:0100}", "r", 9, clock.now()) for number in range(5_000)]
    for first in range(0, len(stale), 500):
        await store._session.near.add(stale[first : first + 500])
    sizes: list[int] = []
    write = store._session.table.put

    async def weighed(item: Item) -> None:
        sizes.append(sum(len(value) for one in item.values() for value in one.values()))
        await write(item)

    monkeypatch.setattr(store._session.table, "put", weighed)
    found: list[str] = []
    for _ in range(20):
        found += await claimed(store, 500)
        if found:
            break
    assert found == [real.id]
    assert max(sizes) < 100_000
    assert len(sizes) > 10


async def test_a_lease_that_is_written_after_its_end_is_ended_all_the_same(
    store: TieredStore, clock: ManualClock
) -> None:
    (late,) = messages(1, clock.now())
    await store.put([late], clock.now())
    held = (await store._session.read([late.id]))[late.id]
    token = store._session.token()
    lease = Lease(token, clock.now() + 10, [late.id])
    await store._session.table.put(lease_item(lease))
    clock.jump(20)
    assert await store.reap(clock.now(), 10) == []  # the claim's write is still on its way
    step = held, lifecycle.lease(held.record, token, clock.now())
    (written,) = await store._session.write([step], clock.now())
    assert written is not None
    clock.jump(AGAIN_MS)
    found: list[str] = []
    for _ in range(6_000):  # the index of leases is a moment behind
        found += [reaped.id for reaped in await store.reap(clock.now(), 10)]
        if found:
            break
        await asyncio.sleep(0.05)
    assert found == [late.id]
    assert await claimed_in_the_end(store, 1) == [late.id]


async def test_without_redis_a_process_counts_for_itself_and_as_rarely(
    server: DynamoServer, proxy: DynamoProxy, redis_way: Proxy, clock: ManualClock
) -> None:
    server.empty(TABLE)
    store = await opened_store(server, proxy.port, redis_way.port, clock, figures="1s")

    async def scheduled() -> int:
        return (await store.figures(clock.now())).states[State.SCHEDULED]

    try:
        redis_way.refuse(True)
        assert await scheduled() == 0
        await store.put(messages(1, clock.now() + DAY), clock.now())
        assert await scheduled() == 0, "counted again at once"
        clock.jump(1_000)
        assert await scheduled() == 1
    finally:
        redis_way.refuse(False)
        await store.close()
