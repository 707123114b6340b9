"""Promises per key on the tiered store, when Redis forgets or a process dies or does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.model.errors import StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Claim, Settlement
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.stores.dynamodb import TieredStore
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer
from tests.conformance.dynamodb_harness import TieredHarness

pytestmark = pytest.mark.slow

ORDERED = KeyLimit(1, ordered=True)
LEASE = 60_000
TABLE = "turns"


@pytest.fixture(scope="module")
def server(dynamodb_node: DynamoServer) -> DynamoServer:
    dynamodb_node.make_table(TABLE)
    return dynamodb_node


@pytest_asyncio.fixture
async def harness(server: DynamoServer, redis_node: RedisServer) -> AsyncIterator[TieredHarness]:
    harness = TieredHarness(server, redis_node, TABLE)
    yield harness
    await harness.close()


@pytest_asyncio.fixture
async def store(harness: TieredHarness) -> AsyncIterator[TieredStore]:
    store = (await harness.open()).messages
    assert isinstance(store, TieredStore)
    await store.keep_turns(["r"])
    yield store
    await store.close()


async def put(store: TieredStore, *ids: str, key: str = "ann") -> None:
    """Due one after the other."""
    now = store.clock.now()
    messages = [
        NewMessage(id=one, route="r", key=key, payload=b"1", due=now - len(ids) + place)
        for place, one in enumerate(ids)
    ]
    await store.put(messages, now)


async def take(store: TieredStore, per_key: KeyLimit = ORDERED, lease: int = LEASE) -> Claim:
    return await store.claim_keyed("r", 10, lease, store.clock.now(), per_key)


def ids(claim: Claim) -> list[str]:
    return [message.id for message in claim.messages]


async def deliver(store: TieredStore, claim: Claim) -> None:
    ends = [
        Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
        for m in claim.messages
    ]
    assert set(await store.settle(ends, store.clock.now())) == {State.DELIVERED}


async def test_a_redis_that_forgot_everything_gives_no_key_twice_and_keeps_the_order(
    store: TieredStore, redis_node: RedisServer
) -> None:
    await put(store, "1", "2", "3")
    await put(store, "b", key="bob")
    first = await take(store)
    assert sorted(ids(first)) == ["1", "b"]
    redis_node.flush()
    assert ids(await take(store)) == []  # both are known to be busy still
    await deliver(store, first)
    gone = []
    while (claim := await take(store)).messages:
        gone.append(ids(claim))
        await deliver(store, claim)
    assert gone == [["2"], ["3"]]


async def test_a_process_that_died_between_redis_and_the_table_holds_nobody_up_for_long(
    store: TieredStore, harness: TieredHarness
) -> None:
    assert ids(await take(store)) == []
    await put(store, "1", "2")
    now = store.clock.now()
    taken = await store._session.turns.take("r", 10, now + 20, now, ORDERED)
    assert [turn.id for turn in taken.taken] == ["1"]  # and there it died
    assert ids(await take(store)) == []
    await harness.pass_time(30)
    await take(store)  # finds out that nobody holds it
    assert ids(await take(store)) == ["1"]


async def test_what_a_process_puts_that_did_not_know_lines_up_too(
    store: TieredStore, harness: TieredHarness
) -> None:
    other = (await harness.open()).messages
    assert isinstance(other, TieredStore)
    other._session.keyed = frozenset()  # as if it had been opened before the promise
    await put(other, "1", "2", "3")
    await other.close()
    first = await take(store)
    assert ids(first) == ["1"]
    assert ids(await take(store)) == []
    await deliver(store, first)
    assert ids(await take(store)) == ["2"]


async def test_while_the_table_cannot_be_read_what_has_its_turn_waits_in_its_place(
    store: TieredStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "1", "2")
    assert ids(await take(store)) == ["1"]
    await put(store, "b1", "b2", key="bob")

    async def away(_: object) -> None:
        raise StoreUnavailable("no table")

    with monkeypatch.context() as broken:
        broken.setattr(store._session, "read", away)
        with pytest.raises(StoreUnavailable):
            await take(store)
    assert ids(await take(store)) == ["b1"]


async def test_a_lease_that_is_extended_stays_busy(
    store: TieredStore, harness: TieredHarness
) -> None:
    await put(store, "1", "2")
    first = await take(store, lease=20)
    await store.extend([first.token], store.clock.now() + LEASE)
    await harness.pass_time(50)
    assert await store.reap(store.clock.now(), 10) == []
    assert ids(await take(store)) == []
    await deliver(store, first)
    assert ids(await take(store)) == ["2"]
