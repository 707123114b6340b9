"""The table: reads in batches, and writes conditional on the item's known revision.

A write names the revision it was made for. In batches of 25 (PartiQL, BatchExecuteStatement) each
statement has an answer of its own; without PartiQL the writes go one by one, concurrently. A write
repeated after a lost answer and then refused may have been refused because of its own first try:
the item itself decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from penstock.model.errors import PenstockError, StoreCorrupt, StoreUnavailable, TooLarge
from penstock.model.size import fitting
from penstock.stores.dynamodb.errors import CONDITION, DUPLICATE, FAULTS, THROTTLED
from penstock.stores.dynamodb.gateway import Gateway, Reply
from penstock.stores.dynamodb.items import Item, Value

STATEMENTS = 25
BATCH_BYTES = 600_000
"""Most bytes of one request's statements, before base64: a larger body would block the loop."""
KEYS = 100

DUE, LIST, KEY = "due", "list", "key"
"""The indexes, all ordered by `o`."""
PARTITION = {DUE: "b", LIST: "l", KEY: "k"}


class Change(NamedTuple):
    """A change from one revision of an item to another."""

    pk: str
    revision: str
    """The revision it was made for."""
    sets: Item
    removes: tuple[str, ...]
    token: int | None = None
    """Also requires the item to be under this lease."""

    @staticmethod
    def between(old: Item, new: Item) -> Change:
        sets = {name: value for name, value in new.items() if old.get(name) != value}
        gone = tuple(sorted(name for name in old if name not in new))
        return Change(old["pk"]["S"], old["n"]["N"], sets, gone)

    def is_done(self, item: Item | None) -> bool:
        """Whether the item is the result of this change."""
        return (
            item is not None
            and all(item.get(name) == value for name, value in self.sets.items())
            and not any(name in item for name in self.removes)
        )


class Range(NamedTuple):
    """A range of one partition of an index."""

    of: str
    """The index's name."""
    partition: str
    after: str | None = None
    """Only orders after this one."""
    before: str | None = None
    """Only orders before this one."""


class Statement(NamedTuple):
    text: str
    parameters: list[Value]


Code: TypeAlias = tuple[str | PenstockError, bool]
"""Empty for success, else the server's error code, or an error about this item alone; and whether
the call was repeated."""


class Table:
    """One table; `partiql` says whether it accepts statements in batches."""

    def __init__(self, gateway: Gateway, name: str, *, partiql: bool = True) -> None:
        self._gateway = gateway
        self.name = name
        self.partiql = partiql

    @property
    def server(self) -> str:
        """The store's name, for people."""
        return self._gateway.name

    async def get(
        self, pks: Sequence[str], attributes: Sequence[str] | None = None
    ) -> dict[str, Item]:
        """The existing items, read consistently."""
        unique = list(dict.fromkeys(pks))
        parts = [unique[i : i + KEYS] for i in range(0, len(unique), KEYS)]
        found = await asyncio.gather(*(self._get(part, attributes) for part in parts))
        return {item["pk"]["S"]: item for part in found for item in part}

    async def _get(self, pks: Sequence[str], attributes: Sequence[str] | None) -> list[Item]:
        asked: dict[str, Any] = {
            "Keys": [{"pk": {"S": pk}} for pk in pks],
            "ConsistentRead": True,
        }
        if attributes is not None:
            asked["ProjectionExpression"] = ", ".join(f"#{name}" for name in attributes)
            asked["ExpressionAttributeNames"] = {f"#{name}": name for name in attributes}
        found: list[Item] = []
        patience = self._gateway.patience()
        rest: Mapping[str, Any] = {self.name: asked}
        while rest:
            reply = (await self._gateway.call("batch_get_item", RequestItems=rest)).reply
            got = reply.get("Responses", {}).get(self.name, [])
            found += got
            rest = reply.get("UnprocessedKeys", {})
            if rest and not got and not await patience.again():
                raise StoreUnavailable(f"{self._gateway.name} did not answer some reads")
        return found

    async def insert(self, items: Sequence[Item]) -> list[bool | PenstockError]:
        """Whether each item was new and is stored; an error for one that cannot be an item."""
        if not items:
            return []
        codes = await self._write([_insert(self.name, item) for item in items], items, ())
        unsure = [
            i for i, (code, again) in enumerate(codes) if again and code in (CONDITION, DUPLICATE)
        ]
        found = await self.get([items[i]["pk"]["S"] for i in unsure]) if unsure else {}
        return [
            code
            if isinstance(code, PenstockError)
            else not code or (again and found.get(items[i]["pk"]["S"]) == items[i])
            for i, (code, again) in enumerate(codes)
        ]

    async def change(self, changes: Sequence[Change]) -> list[bool]:
        """Whether each item was as its change expected, and is changed."""
        if not changes:
            return []
        codes = await self._write([_update(self.name, one) for one in changes], (), changes)
        for code, _ in codes:
            if isinstance(code, PenstockError):
                raise code
        unsure = [
            one.pk for one, (code, again) in zip(changes, codes, strict=True) if code and again
        ]
        found = await self.get(unsure) if unsure else {}
        return [
            not code or (again and one.is_done(found.get(one.pk)))
            for one, (code, again) in zip(changes, codes, strict=True)
        ]

    async def put(self, item: Item) -> None:
        """Write an item unconditionally."""
        await self._gateway.call("put_item", TableName=self.name, Item=item)

    async def update(self, pk: str, expression: str, **more: Any) -> bool:
        """Update one item by a DynamoDB expression; False if its condition was not met."""
        answer = await self._gateway.call(
            "update_item",
            TableName=self.name,
            Key={"pk": {"S": pk}},
            UpdateExpression=expression,
            **more,
        )
        return "Refused" not in answer.reply

    async def delete(self, pk: str, revision: str | None = None) -> bool:
        """Delete an item, with a revision only if it still has that one; whether it is gone."""
        more: dict[str, Any] = {}
        if revision is not None:
            more["ConditionExpression"] = "#n = :n"
            more["ExpressionAttributeNames"] = {"#n": "n"}
            more["ExpressionAttributeValues"] = {":n": {"N": revision}}
        answer = await self._gateway.call(
            "delete_item", TableName=self.name, Key={"pk": {"S": pk}}, **more
        )
        return "Refused" not in answer.reply

    async def pages(self, asked: Range, limit: int | None = None) -> AsyncIterator[list[Item]]:
        """The index entries of a range in order, page by page (of about `limit`)."""
        start: Mapping[str, Any] | None = None
        while True:
            reply = await self._query(asked, start, Limit=limit)
            yield reply.get("Items", [])
            start = reply.get("LastEvaluatedKey")
            if start is None:
                return

    async def count(self, asked: Range, pages: int) -> int:
        """The number of entries; counting stops after `pages` pages of 1 MB."""
        number = 0
        start: Mapping[str, Any] | None = None
        for _ in range(pages):
            reply = await self._query(asked, start, Select="COUNT")
            number += int(reply["Count"])
            start = reply.get("LastEvaluatedKey")
            if start is None:
                break
        return number

    async def _query(self, asked: Range, start: Mapping[str, Any] | None, **more: Any) -> Reply:
        condition = "#k = :k"
        values: Item = {":k": {"S": asked.partition}}
        names = {"#k": PARTITION[asked.of]}
        if asked.after is not None and asked.before is not None:
            # Only one condition on a sort key is possible; BETWEEN includes its ends, and
            # neither end ever equals an order: one is extended, the other has no id.
            condition += " AND #o BETWEEN :after AND :before"
            values[":after"] = {"S": asked.after + "\x00"}
            values[":before"] = {"S": asked.before}
        elif asked.after is not None:
            condition += " AND #o > :after"
            values[":after"] = {"S": asked.after}
        elif asked.before is not None:
            condition += " AND #o < :before"
            values[":before"] = {"S": asked.before}
        if asked.after is not None or asked.before is not None:
            names["#o"] = "o"
        if start is not None:
            more["ExclusiveStartKey"] = start
        answer = await self._gateway.call(
            "query",
            TableName=self.name,
            IndexName=asked.of,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            **{name: value for name, value in more.items() if value is not None},
        )
        return answer.reply

    async def _write(
        self, statements: Sequence[Statement], items: Sequence[Item], changes: Sequence[Change]
    ) -> list[Code]:
        if not self.partiql:
            singly = [self._put_new(item) for item in items]
            singly += [self._change_one(change) for change in changes]
            return list(await asyncio.gather(*singly))
        parts = _in_batches(statements)
        if len(parts) == 1:
            return await self._batch(parts[0])
        return [code for part in await asyncio.gather(*map(self._batch, parts)) for code in part]

    async def _batch(self, statements: Sequence[Statement]) -> list[Code]:
        codes: list[Code] = [("", False)] * len(statements)
        left = list(range(len(statements)))
        patience = self._gateway.patience()
        while True:
            asked = [
                {"Statement": statements[i].text, "Parameters": statements[i].parameters}
                for i in left
            ]
            answer = await self._gateway.call("batch_execute_statement", Statements=asked)
            again: list[int] = []
            for i, one in zip(left, answer.reply["Responses"], strict=True):
                error = one.get("Error")
                code = "" if error is None else str(error.get("Code"))
                codes[i] = code, codes[i][1] or answer.repeated or code in FAULTS
                if code in THROTTLED or code in FAULTS:
                    again.append(i)
                elif code not in ("", CONDITION, DUPLICATE):
                    codes[i] = self._refused(code, str(error.get("Message"))), True
            if not again:
                return codes
            if not await patience.again():
                raise StoreUnavailable(
                    f"{self._gateway.name} throttles requests: {codes[again[0]][0]}"
                )
            left = again

    async def _put_new(self, item: Item) -> Code:
        try:
            answer = await self._gateway.call(
                "put_item",
                TableName=self.name,
                Item=item,
                ConditionExpression="attribute_not_exists(pk)",
            )
        except StoreCorrupt as exc:
            return self._refused("ValidationError", exc.message), True
        return (DUPLICATE if "Refused" in answer.reply else ""), answer.repeated

    async def _change_one(self, change: Change) -> Code:
        names = {"#n": "n", **{f"#{name}": name for name in (*change.sets, *change.removes)}}
        values = {":was": {"N": change.revision}}
        values.update({f":{name}": value for name, value in change.sets.items()})
        expression = "SET " + ", ".join(f"#{name} = :{name}" for name in change.sets)
        if change.removes:
            expression += " REMOVE " + ", ".join(f"#{name}" for name in change.removes)
        condition = "#n = :was"
        if change.token is not None:
            condition += " AND #tk = :token"
            names["#tk"] = "tk"
            values[":token"] = {"N": str(change.token)}
        answer = await self._gateway.call(
            "update_item",
            TableName=self.name,
            Key={"pk": {"S": change.pk}},
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )
        return (CONDITION if "Refused" in answer.reply else ""), answer.repeated

    def _refused(self, code: str, message: str) -> PenstockError:
        """The error about one item; raises an error that concerns the whole call."""
        if "size" in message.lower():
            return TooLarge(f"message: {message} (DynamoDB keeps 400 KB of one)", field="payload")
        if code in ("AccessDenied", "ResourceNotFound"):
            raise StoreUnavailable(f"{self._gateway.name}: {message}", retry_after=5.0)
        return StoreCorrupt(f"{self._gateway.name}: {code}: {message}")


def _in_batches(statements: Sequence[Statement]) -> list[Sequence[Statement]]:
    """Statements grouped as one request may hold them, in number and in bytes."""
    parts: list[Sequence[Statement]] = []
    while statements:
        some = statements[:STATEMENTS]
        number = fitting(map(_size_of, some), BATCH_BYTES)
        parts.append(statements[:number])
        statements = statements[number:]
    return parts


def _size_of(statement: Statement) -> int:
    values = (value for parameter in statement.parameters for value in parameter.values())
    return sum(len(value) for value in values if isinstance(value, str | bytes))


def _insert(table: str, item: Item) -> Statement:
    return Statement(_insert_text(table, tuple(item)), list(item.values()))


def _update(table: str, change: Change) -> Statement:
    text = _update_text(table, tuple(change.sets), change.removes, change.token is not None)
    parameters = [*change.sets.values(), {"S": change.pk}, {"N": change.revision}]
    if change.token is not None:
        parameters.append({"N": str(change.token)})
    return Statement(text, parameters)


@lru_cache(maxsize=1024)
def _insert_text(table: str, names: tuple[str, ...]) -> str:
    values = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{values}}}'


@lru_cache(maxsize=1024)
def _update_text(table: str, sets: tuple[str, ...], removes: tuple[str, ...], fenced: bool) -> str:
    text = f'UPDATE "{table}"'
    text += "".join(f' SET "{name}" = ?' for name in sets)
    text += "".join(f' REMOVE "{name}"' for name in removes)
    return text + ' WHERE "pk" = ? AND "n" = ?' + (' AND "tk" = ?' if fenced else "")
