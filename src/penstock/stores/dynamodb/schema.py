"""The table: created on request, checked at start, with its layout's version inside."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.model.errors import ConfigError, PenstockError, StoreUnavailable
from penstock.model.identity import DEFAULT_PARTITIONS
from penstock.stores.dynamodb.errors import DUPLICATE, code_of
from penstock.stores.dynamodb.gateway import Gateway
from penstock.stores.dynamodb.items import Item
from penstock.stores.dynamodb.table import DUE, KEY, LIST, PARTITION, Table

SCHEMA_VERSION = 2
SCHEMA = "s:schema"
PROBE = "s:probe"
_CREATE_SECONDS = 120
_PROJECTED = {
    DUE: {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["r", "pr"]},
    LIST: {"ProjectionType": "KEYS_ONLY"},
    KEY: {"ProjectionType": "KEYS_ONLY"},
}


def definition(table: str) -> dict[str, Any]:
    """The request of CreateTable."""
    named = sorted({"pk", "o", *PARTITION.values()})
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in named],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": [
                    {"AttributeName": partition, "KeyType": "HASH"},
                    {"AttributeName": "o", "KeyType": "RANGE"},
                ],
                "Projection": _PROJECTED[index],
            }
            for index, partition in PARTITION.items()
        ],
    }


def lacks_table(exc: StoreUnavailable) -> bool:
    """Whether the server says that the table does not exist, or is not ready."""
    return "no such table" in exc.message


async def state_of(gateway: Gateway, table: str) -> str | None:
    """The table's status, ACTIVE, CREATING …; None if it does not exist."""
    try:
        answer = await gateway.call("describe_table", TableName=table)
    except StoreUnavailable as exc:
        if lacks_table(exc):
            return None
        raise
    found = answer.reply["Table"]
    states = {found["TableStatus"]}
    states |= {index["IndexStatus"] for index in found.get("GlobalSecondaryIndexes", [])}
    return "ACTIVE" if states == {"ACTIVE"} else str(found["TableStatus"])


async def _make(gateway: Gateway, table: str) -> None:
    """Create the table; another process, or an unanswered first try, may have created it before."""
    try:
        await gateway.call("create_table", **definition(table))
    except PenstockError as exc:
        cause = exc.__cause__
        if not isinstance(cause, Exception) or code_of(cause) != "ResourceInUseException":
            raise


async def create(gateway: Gateway, table: str, shards: int) -> bool:
    """Create missing parts; False if none was missing. Harmless to repeat."""
    made = await state_of(gateway, table) is None
    if made:
        await _make(gateway, table)
    for _ in range(_CREATE_SECONDS * 4):
        if await state_of(gateway, table) == "ACTIVE":
            break
        await asyncio.sleep(0.25)
    else:
        raise StoreUnavailable(f"{gateway.name}: the table is not ready yet", retry_after=5.0)
    await _expire(gateway, table)
    plain = Table(gateway, table, partiql=False)
    # `insert`: the first process's values stay, whatever later settings are.
    await plain.insert([_schema_item(shards), {"pk": {"S": PROBE}, "n": {"N": "1"}}])
    return made


def _schema_item(shards: int) -> Item:
    return {
        "pk": {"S": SCHEMA},
        "n": {"N": "1"},
        "version": {"N": str(SCHEMA_VERSION)},
        "shards": {"N": str(shards)},
    }


async def _expire(gateway: Gateway, table: str) -> None:
    """Turn on deletion by `ttl`; without it settled messages stay."""
    if await _expires(gateway, table):
        return
    try:
        await gateway.call(
            "update_time_to_live",
            TableName=table,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"},
        )
    except PenstockError:
        if not await _expires(gateway, table):  # another process may just have turned it on
            raise


async def _expires(gateway: Gateway, table: str) -> bool:
    described = (await gateway.call("describe_time_to_live", TableName=table)).reply
    status = described.get("TimeToLiveDescription", {}).get("TimeToLiveStatus")
    return status in ("ENABLED", "ENABLING")


async def shards_of(table: Table) -> int:
    """The table's own number of shards; ConfigError if this version cannot use the table."""
    item = (await table.get([SCHEMA])).get(SCHEMA)
    if item is None:
        raise ConfigError(
            f"store: {table.name} is not a table of Penstock: make one with `penstock store init`"
        )
    version = int(item["version"]["N"])
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"store: {table.name} has format {version}, this Penstock knows {SCHEMA_VERSION}:"
            f" {'upgrade Penstock' if version > SCHEMA_VERSION else 'it was written before 0.2'},"
            " or name another table"
        )
    return int(item["shards"]["N"])


async def keep_partitions(table: Table, total: int | None) -> int:
    """Store the largest number of partitions ever used; ConfigError for a smaller one.

    The answer is the number to use: with None, the stored one.
    """
    stored = (await table.get([SCHEMA])).get(SCHEMA, {}).get("partitions", {}).get("N")
    if total is None:
        total = DEFAULT_PARTITIONS if stored is None else int(stored)
    grown = await table.update(
        SCHEMA,
        "SET #p = :total",
        ConditionExpression="attribute_not_exists(#p) OR #p <= :total",
        ExpressionAttributeNames={"#p": "partitions"},
        ExpressionAttributeValues={":total": {"N": str(total)}},
    )
    if not grown:
        raise ConfigError(
            f"worker.total_partitions: {table.name} has {stored} and they cannot be reduced to"
            f" {total}; set it to {stored} or more"
        )
    return total


async def takes_statements(gateway: Gateway, table: str) -> bool:
    """Whether BatchExecuteStatement works here and reports duplicates: emulators often do not."""
    statement = f"INSERT INTO \"{table}\" VALUE {{'pk': ?, 'n': ?}}"
    asked = [{"Statement": statement, "Parameters": [{"S": PROBE}, {"N": "1"}]}]
    reply = await gateway.asks("batch_execute_statement", Statements=asked)
    answers = [] if reply is None else reply.get("Responses", [])
    return any(answer.get("Error", {}).get("Code") == DUPLICATE for answer in answers)
