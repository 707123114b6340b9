"""Puts into DynamoDB Local beside bare conditional writes of the same items by the same client."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.report import Report
from bench.workload import messages
from penstock.model.message import NewMessage
from penstock.stores.dynamodb import TieredStore, init_store, open_store
from penstock.stores.dynamodb.address import parse_address
from penstock.stores.dynamodb.gateway import Gateway, open_gateway
from penstock.stores.dynamodb.items import Item, Shape, first_record, to_item
from systems.servers.dynamodb import DynamoServer, dynamo_server
from systems.servers.redis import RedisServer

NUMBER = 2_000
ROUNDS = 3
BATCH = 500
SHARDS = 64
TABLE = "bench"
NEAR = 60_000


async def _one_by_one(gateway: Gateway, items: Sequence[Item]) -> float:
    """PutItem on the condition that the key is new."""
    start = time.perf_counter()
    for i in range(0, len(items), BATCH):
        await asyncio.gather(
            *(
                gateway.call(
                    "put_item",
                    TableName=TABLE,
                    Item=item,
                    ConditionExpression="attribute_not_exists(pk)",
                )
                for item in items[i : i + BATCH]
            )
        )
    return len(items) / (time.perf_counter() - start)


async def _statements(gateway: Gateway, items: Sequence[Item]) -> float:
    """INSERT, 25 a call: what the store does, without anything of the store."""
    names = tuple(items[0])
    values = ", ".join(f"'{name}': ?" for name in names)
    text = f'INSERT INTO "{TABLE}" VALUE {{{values}}}'
    start = time.perf_counter()
    for i in range(0, len(items), BATCH):
        part = items[i : i + BATCH]
        await asyncio.gather(
            *(
                gateway.call(
                    "batch_execute_statement",
                    Statements=[
                        {"Statement": text, "Parameters": [item[name] for name in names]}
                        for item in part[j : j + 25]
                    ],
                )
                for j in range(0, len(part), 25)
            )
        )
    return len(items) / (time.perf_counter() - start)


async def _store(store: TieredStore, made: Sequence[NewMessage]) -> float:
    start = time.perf_counter()
    for i in range(0, len(made), BATCH):
        await store.put(made[i : i + BATCH], store.clock.now())
    return len(made) / (time.perf_counter() - start)


def _items(made: Sequence[NewMessage]) -> list[Item]:
    shape = Shape(60_000, SHARDS)
    return [to_item(first_record(message, message.due), shape, 0) for message in made]


async def _measure(report: Report, url: str) -> None:
    await init_store(url)
    gateway = await open_gateway(parse_address(url))
    store = (
        await open_store(url, total_partitions=8, retention=86_400_000, retention_count=10**6)
    ).messages
    assert isinstance(store, TieredStore)
    await _statements(gateway, _items(messages(NUMBER)))  # warm the server up
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):  # in turns, so that a slow moment of the machine hits all
        singly = await _one_by_one(gateway, _items(messages(NUMBER)))
        rates.setdefault("singly", []).append(singly)
        batched = await _statements(gateway, _items(messages(NUMBER)))
        rates.setdefault("batched", []).append(batched)
        rates.setdefault("far", []).append(await _store(store, messages(NUMBER)))
        rates.setdefault("near", []).append(await _store(store, messages(NUMBER, ahead=NEAR)))
    await store.close()
    await gateway.close()
    best = {name: max(found) for name, found in rates.items()}
    report.add("bare conditional PutItem", best["singly"], "messages/s")
    report.add("bare INSERT statements, 25 a call", best["batched"], "messages/s")
    for name, what in (("far", "an hour ahead"), ("near", "a minute ahead, to Redis too")):
        report.add(
            f"store.put, {what}",
            best[name],
            "messages/s",
            baseline=best["singly"],
            against="bare conditional PutItem",
            aim=">= 0.8 x",
        )
        report.add(
            f"store.put, {what}, against statements",
            best[name],
            "messages/s",
            baseline=best["batched"],
            against="bare INSERT statements",
            aim=">= 0.8 x",
        )


def _run(report: Report, dynamodb: DynamoServer, redis: RedisServer) -> None:
    asyncio.run(_measure(report, dynamodb.url(TABLE, redis.url, shards=SHARDS, timeout="60s")))


def main() -> None:
    report = Report("dynamodb", f"batches of {BATCH} 100-byte messages, DynamoDB Local in memory")
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        dynamodb = dynamo_server(Path(folder))
        dynamodb.start()
        try:
            _run(report, dynamodb, redis)
        finally:
            dynamodb.kill()
    report.finish()
