"""The index by key: turned on with messages in place, growing with the store, dropped again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from penstock.model.message import NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.redis import open_store
from penstock.stores.redis.search import key_index, search
from penstock.stores.redis.store import RedisStore
from systems.servers.redis import RedisCluster, RedisServer

pytestmark = pytest.mark.slow

DAY = 86_400_000
LONG = b"x" * 100
"""So long that Redis does not keep a few hundred records in one piece."""


@pytest.fixture(scope="module")
def one() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(fails_over=False) as cluster:
        yield cluster


@pytest.fixture(params=["one", "cluster"])
def server(request: pytest.FixtureRequest) -> RedisServer | RedisCluster:
    found: RedisServer | RedisCluster = request.getfixturevalue(request.param)
    found.flush()
    return found


@asynccontextmanager
async def opened(
    server: RedisServer | RedisCluster,
    options: str = "",
    *,
    partitions: int = 4,
    retention: int = DAY,
) -> AsyncIterator[RedisStore]:
    store = (
        await open_store(
            server.url + options,
            total_partitions=partitions,
            retention=retention,
            retention_count=10_000,
        )
    ).messages
    assert isinstance(store, RedisStore)
    try:
        yield store
    finally:
        await store.close()


async def put(store: MessageStore, *pairs: tuple[str, str]) -> None:
    now = store.clock.now()
    new = [
        NewMessage(
            id=name, route="r", key=key, payload=LONG, due=now + n, on_conflict=OnConflict.REPLACE
        )
        for n, (name, key) in enumerate(pairs)
    ]
    await store.put(new, now)


async def with_key(store: MessageStore, key: str, limit: int = 100) -> list[str]:
    """Every page of it."""
    found: list[str] = []
    cursor = None
    while True:
        page = await store.search(Filter(key=key), cursor, limit)
        found += [message.id for message in page.items]
        cursor = page.next
        if cursor is None:
            return found


async def indexed(store: RedisStore, key: str) -> int | None:
    """Entries the index has for it; None: it is not complete."""
    listed = await key_index.listed_by_key(store._session, key, search.EXACT)
    return None if listed is None else sum(map(len, listed.values()))


async def test_an_index_finds_every_message_of_a_key_in_order_and_no_other(
    server: RedisServer | RedisCluster,
) -> None:
    async with opened(server, "?key_index=true") as store:
        await put(store, *((f"m{n:03}", "änn" if n % 3 else "ännä") for n in range(90)))
        await put(store, ("bob", "bob"), ("b-2", "bob"))
        wanted = [f"m{n:03}" for n in range(90) if n % 3]
        assert await with_key(store, "änn", limit=7) == wanted
        assert await indexed(store, "änn") == 60
        assert sorted(await with_key(store, "bob")) == ["b-2", "bob"]
        assert await with_key(store, "nobody") == []


async def test_what_is_replaced_settled_and_forgotten_leaves_the_index_too(
    server: RedisServer | RedisCluster,
) -> None:
    async with opened(server, "?key_index=true", retention=200) as store:
        await put(store, ("a", "öld"), ("b", "öld"))
        await put(store, ("a", "nëw"))
        assert await with_key(store, "öld") == ["b"]
        assert await with_key(store, "nëw") == ["a"]
        now = store.clock.now()
        cancels = [Amendment(id=name, action=Action.CANCEL) for name in ("a", "b")]
        await store.amend(cancels, now)
        (found,) = (await store.search(Filter(key="öld"), None, 10)).items
        assert found.state is State.CANCELLED
        async with asyncio.timeout(300):  # what is over is told by the server's own clock
            while await store.find(["a", "b"]) != [None, None]:
                await asyncio.sleep(0.02)
                await store.purge(store.clock.now(), 100)
        assert [await indexed(store, key) for key in ("öld", "nëw")] == [0, 0]


async def test_one_asked_for_with_messages_in_place_is_filled_in_steps_and_used_when_complete(
    server: RedisServer | RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "LOOKED_AT", 50)
    monkeypatch.setattr(key_index, "BREATH", 0.001)
    async with opened(server) as store:
        assert await indexed(store, "änn") is None
        await put(store, *((f"m{n:04}", "änn" if n % 10 == 0 else f"k{n}") for n in range(2_000)))
        wanted = [f"m{n:04}" for n in range(0, 2_000, 10)]
        assert await with_key(store, "änn") == wanted
        async with opened(server, "?key_index=true") as filling:
            assert await indexed(filling, "änn") is None  # a step does not do it
            assert await with_key(filling, "änn") == wanted
            await put(store, ("late", "änn"))  # by a process that was told nothing of it
            async with asyncio.timeout(60):
                while await indexed(filling, "änn") is None:  # noqa: ASYNC110 - another's work
                    await asyncio.sleep(0.005)
        assert await indexed(store, "änn") == 201
        assert sorted(await with_key(store, "änn")) == sorted([*wanted, "late"])


async def test_partitions_that_come_later_are_indexed_too(
    server: RedisServer | RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "REST", 0.01)
    names = [(f"m{n}", "änn") for n in range(40)]
    async with opened(server, "?key_index=true") as store:
        await put(store, *names[:20])
        async with opened(server, partitions=9) as grown:
            await put(grown, *names[20:])
            assert await indexed(grown, "änn") is None
            assert sorted(await with_key(grown, "änn")) == sorted(name for name, _ in names)
            await put(store, ("again", "änn"))  # its process learns of the new ones
            async with asyncio.timeout(60):
                while await indexed(grown, "änn") is None:  # noqa: ASYNC110 - another's work
                    await asyncio.sleep(0.005)
            assert await indexed(grown, "änn") == 41


async def test_a_key_with_more_than_the_index_shall_read_is_found_without_it(
    one: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.flush()
    monkeypatch.setattr(search, "EXACT", 50)
    async with opened(one, "?key_index=true") as store:
        await put(store, *((f"m{n}", "änn") for n in range(60)))
        assert sorted(await with_key(store, "änn", limit=13)) == sorted(f"m{n}" for n in range(60))


async def test_a_dropped_index_is_gone_and_can_be_asked_for_again(one: RedisServer) -> None:
    one.flush()
    async with opened(one, "?key_index=true") as store:
        await put(store, ("a", "änn"))
        async with opened(one, "?key_index=false"):
            assert await indexed(store, "änn") is None
            await put(store, ("b", "änn"))
            assert await with_key(store, "änn") == ["a", "b"]
        async with opened(one, "?key_index=true"):
            assert await indexed(store, "änn") == 2
            assert await with_key(store, "änn") == ["a", "b"]
