"""How Redis keeps counters: nothing piles up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count, islice

import pytest
import pytest_asyncio

from penstock.model.decision import Conclusion, End, Question
from penstock.model.policy import Cap, Scope
from penstock.model.verdict import Verdict
from penstock.stores.redis import RedisStore
from penstock.stores.redis.policies.book import SHARDS
from penstock.stores.redis.policies.keys import CounterKeys
from penstock.testing import policy_worlds as worlds
from systems.servers.redis import RedisServer
from tests.faults.policy_caller import opened

pytestmark = pytest.mark.slow

KEYS = CounterKeys("penstock", SHARDS)
SENT, IDS, _ = KEYS.shared.counter("1\x1froute=default")
EVERYBODY = Cap(scope=(Scope.ROUTE,), limit=10_000, window="24h")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    server.flush()
    store = await opened(server.url)
    assert isinstance(store, RedisStore)
    yield store
    await store.close()


def asked(name: str, number: int, now: int, keys: Sequence[str] = ("ann",)) -> list[Question]:
    return [Question(id=f"{name}-{n}", key=keys[n % len(keys)], due=now) for n in range(number)]


async def held_by(store: RedisStore, questions: list[Question], now: int) -> None:
    decisions = await store.policies.decide(questions, now, worlds.HOLD)
    assert all(decision.verdict is Verdict.ALLOW for decision in decisions)


async def end_all(
    store: RedisStore, questions: list[Question], end: End, now: int, until: int = 0
) -> None:
    ends = [
        Conclusion(question, end, until and until + 1_000 * n)
        for n, question in enumerate(questions)
    ]
    await store.policies.conclude(ends, now)


async def used(store: RedisStore, now: int) -> int:
    (told,) = await store.policies.explain(asked("new", 1, now), now)
    return int(told.rules[0].detail.split()[0])


def fields(server: RedisServer, key: bytes) -> int:
    """But for the one that makes it a table."""
    with server.client as client:
        return int(client.hlen(key)) - 1


async def test_accounts_of_no_use_are_dropped_by_those_who_come_later(
    server: RedisServer, store: RedisStore
) -> None:
    await store.policies.put_policy("some", Cap(scope=(Scope.KEY,), limit=90, window="10s"))
    shard = KEYS.shards[0]
    keys = [key for key in (f"k{n}" for n in range(999)) if KEYS.shard_of(key.encode()) is shard]
    now = worlds.START
    await held_by(store, asked("first", len(keys), now, keys), now)
    assert fields(server, shard.accounts) == len(keys)
    for left in (len(keys), 2):  # they are kept for an hour more than they can matter
        now += worlds.HOUR
        for turn in range(80):
            some = asked(f"{turn}", 64, now, keys[:2])
            await held_by(store, some, now)
            await end_all(store, some, End.RELEASE, now)
        assert fields(server, shard.accounts) == left


async def test_keys_that_are_written_to_only_once_do_not_fill_the_server(
    server: RedisServer, store: RedisStore
) -> None:
    await store.policies.put_policy("some", Cap(scope=(Scope.KEY,), limit=90, window="10s"))
    shard = KEYS.shards[0]
    fresh = (key for key in (f"k{n}" for n in count()) if KEYS.shard_of(key.encode()) is shard)
    now = worlds.START
    for turn in range(150):
        some = asked(f"{turn}", 64, now, list(islice(fresh, 64)))
        await held_by(store, some, now)
        await end_all(store, some, End.COMMIT, now)
        now += worlds.HOUR
    assert fields(server, shard.accounts) < 150 * 64 / 4


async def test_the_latest_of_many_that_were_counted_are_known(
    server: RedisServer, store: RedisStore
) -> None:
    await store.policies.put_policy("all", EVERYBODY)
    now = worlds.START
    batches = [asked(f"{turn}", 500, now) for turn in range(6)]
    for batch in batches:
        await held_by(store, batch, now)
        await end_all(store, batch, End.COMMIT, now)
    for batch in batches[-2:]:
        await end_all(store, batch, End.COMMIT, now + 1)
    assert await used(store, now + 1) == 3_000
    assert 1_000 <= fields(server, IDS) <= 2_000


async def test_places_that_nobody_spoke_of_any_more_do_not_pile_up(
    server: RedisServer, store: RedisStore
) -> None:
    await store.policies.put_policy("all", EVERYBODY)
    now = worlds.START
    await held_by(store, asked("lost", 500, now), now)
    assert await used(store, now) == 500
    now += worlds.HOLD
    for turn in range(40):
        await held_by(store, asked(f"{turn}", 1, now), now)
        await end_all(store, asked(f"{turn}", 1, now), End.COMMIT, now)
    assert await used(store, now) == 40
    assert fields(server, IDS) < 40 + 100


async def test_places_held_until_many_moments_are_never_fewer_than_they_are(
    store: RedisStore,
) -> None:
    """More moments than are told apart: some come free a little later."""
    await store.policies.put_policy("all", EVERYBODY)
    now, later = worlds.START, worlds.START + worlds.HOUR
    batch = asked("kept", 700, now)
    await held_by(store, batch, now)
    await end_all(store, batch, End.KEEP, now, until=later)
    assert await used(store, now) == 700
    for passed in (1, 250, 600):
        assert 700 - passed <= await used(store, later + 1_000 * passed - 1) <= 700 - passed + 2
    await end_all(store, batch[::2], End.RELEASE, now)
    assert await used(store, now) == 350
    await end_all(store, batch[1::2], End.COMMIT, now)
    assert await used(store, now) == 350
    assert await used(store, later + worlds.HOUR) == 350
