"""Cancel against fire on the tiered store, ten thousand times: exactly one of them wins each."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator

import pytest

from penstock.model.message import NewMessage
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.dynamodb import TieredStore, init_store, open_store
from penstock.stores.dynamodb.items import first_record, to_item, to_message
from penstock.stores.dynamodb.table import STATEMENTS
from systems.servers.dynamodb import DynamoServer, Moto
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

RACES = int(os.environ.get("PENSTOCK_RACES", "10000"))
STAND_IN_RACES = 2_000
"""Where the server is moto, which takes several times as long for each."""
TOGETHER = 1_000
"""Messages due at one instant, all of which are claimed and cancelled at once."""
PART = 100
"""Messages of one claim and of one cancel: several calls to DynamoDB, in which they meet."""
LEASE = DAY = 86_400_000


@pytest.fixture
def table(dynamodb: DynamoServer) -> Iterator[str]:
    """One of its own: dropped at once where another is emptied item by item."""
    dynamodb.make_table("races", shards=2)
    yield "races"
    dynamodb.drop("races")


async def opened(server: DynamoServer, table: str, redis: RedisServer) -> MessageStore:
    return (
        await open_store(
            server.url(table, redis.url, timeout="20s"),
            total_partitions=4,
            retention=DAY,
            retention_count=1_000,
        )
    ).messages


async def set_up(store: MessageStore, ids: list[str], due: int) -> None:
    """What a put leaves behind, in writes without a condition: a third of the server's time."""
    assert isinstance(store, TieredStore)
    session = store._session
    news = [NewMessage(id=i, route="r", key=i, payload=b"1", due=due) for i in ids]
    items = [to_item(first_record(new, due), session.shape, DAY) for new in news]
    await session.buckets.ensure([due], due)
    writes = [{"PutRequest": {"Item": item}} for item in items]
    await asyncio.gather(
        *(
            session.table._gateway.call(
                "batch_write_item", RequestItems={session.table.name: writes[i : i + STATEMENTS]}
            )
            for i in range(0, len(writes), STATEMENTS)
        )
    )
    await session.bring([to_message(item) for item in items], due)


async def fire(store: MessageStore, now: int) -> list[str]:
    """Ids that were claimed, until there are no more."""
    fired: list[str] = []
    while claimed := (await store.claim("r", PART, LEASE, now)).messages:
        fired += [message.id for message in claimed]
    return fired


async def cancel(store: MessageStore, parts: list[list[str]], now: int) -> list[str]:
    """Ids that were cancelled, of parts that several callers take from."""
    cancelled: list[str] = []
    while parts:
        part = parts.pop()
        asked = [Amendment(action=Action.CANCEL, id=one) for one in part]
        answers = await store.amend(asked, now)
        assert {answer.answer for answer in answers} <= {Answer.DONE, Answer.RELEASED}
        done = zip(part, answers, strict=True)
        cancelled += [one for one, answer in done if answer.answer is Answer.DONE]
    return cancelled


async def test_of_a_cancel_and_a_claim_exactly_one_wins(
    dynamodb: DynamoServer, table: str, redis_node: RedisServer
) -> None:
    """Two that fire and two that cancel, on two stores, on one truth."""
    redis_node.flush()
    stores = [await opened(dynamodb, table, redis_node) for _ in range(2)]
    one, other = stores
    chance = random.Random(5)
    wins = {"fired": 0, "cancelled": 0}
    races = min(RACES, STAND_IN_RACES) if isinstance(dynamodb, Moto) else RACES
    for first in range(0, races, TOGETHER):
        ids = [f"m{number}" for number in range(first, min(races, first + TOGETHER))]
        due = int(time.time() * 1000) - 1_000
        await set_up(one, ids, due)
        now = one.clock.now()
        mixed = chance.sample(ids, len(ids))
        parts = [mixed[i : i + PART] for i in range(0, len(mixed), PART)]
        fired, fired_too, *cancelled = await asyncio.gather(
            *(fire(store, now) for store in stores),
            *(cancel(store, parts, now) for store in stores),
        )
        winners = [*fired, *fired_too, *cancelled[0], *cancelled[1]]
        assert sorted(winners) == sorted(ids), "each has one winner, and only one"
        wins["fired"] += len(fired) + len(fired_too)
        wins["cancelled"] += len(cancelled[0]) + len(cancelled[1])
        some = mixed[:PART]
        held = {m.id: m.state for m in await other.find(some) if m is not None}
        told = {*cancelled[0], *cancelled[1]}
        assert [held[i] is State.CANCELLED for i in some] == [i in told for i in some]
    print(wins)
    assert all(wins.values())
    for store in stores:
        await store.close()


async def test_dynamodb_tables_may_be_made_by_several_processes_at_once(
    dynamodb: DynamoServer, redis: RedisServer
) -> None:
    url = dynamodb.url("made-at-once", redis.url, timeout="30s")
    assert len(await asyncio.gather(*(init_store(url) for _ in range(3)))) == 3
    dynamodb.drop("made-at-once")


@pytest.mark.parametrize("paused", [True, False])
async def test_a_copy_of_the_paused_routes_read_before_a_change_does_not_undo_it(
    dynamodb: DynamoServer,
    table: str,
    redis_node: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    paused: bool,
) -> None:
    """The background copy is under way while a route is paused or resumed."""
    redis_node.flush()
    store = await opened(dynamodb, table, redis_node)
    assert isinstance(store, TieredStore)
    await store.pause("r", not paused)
    near = store._session.near
    copy = near.open

    async def late(routes: frozenset[str], version: int, *, use: bool) -> None:
        monkeypatch.setattr(near, "open", copy)
        await store.pause("r", paused)
        await copy(routes, version, use=use)

    monkeypatch.setattr(near, "open", late)
    await store._reopen()
    due = int(time.time() * 1000) - 1_000
    await set_up(store, ["m"], due)
    assert await fire(store, due + 1_000) == ([] if paused else ["m"])
    await store.close()
