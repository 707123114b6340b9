"""Several messages as one of the receiver's: a decision batch, in front of any sink.

    {"decision": "ALLOW", "tta": 1767225600, "notify_msg": [item, item, …]}

Items are the payloads as they are, at most 1000 of what is due together. One that has no id of its
own gets its message's, so that whoever takes the batch apart can tell repeats. All of a batch share
the fate the sink reports for it; a batch that is refused for good is sent again in halves, so that
only the message that is to blame is dead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from penstock.model.message import JSON, Message
from penstock.model.outcome import Dead, SendOutcome
from penstock.ports.sink import Sink

MAX_ITEMS = 1_000
MAX_BYTES = 512 * 1024
"""Of one batch, unless a single item is larger: brokers take a megabyte by default."""


class _Item(msgspec.Struct):
    id: str | int | None = None


class _Packed(msgspec.Struct, frozen=True):
    """Indices of the messages in one batch."""

    indices: list[int]
    items: list[bytes]


class PackedSink:
    """Packs what it is given and hands the batches on to the sink behind it."""

    max_batch = MAX_ITEMS

    def __init__(self, inner: Sink, *, max_bytes: int = MAX_BYTES) -> None:
        self.name = inner.name
        self.concurrency = max(inner.concurrency, 2 * MAX_ITEMS)
        self._inner = inner
        self._max_bytes = max_bytes

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        outcomes: list[SendOutcome | None] = [None] * len(batch)
        packed = list(self._pack(batch, outcomes))
        while packed:
            refused: list[_Packed] = []
            for one, outcome in await self._send(batch, packed):
                if isinstance(outcome, Dead) and len(one.indices) > 1:
                    refused.append(one)
                else:
                    for index in one.indices:
                        outcomes[index] = outcome
            packed = [half for one in refused for half in _halves(one)]
        return [outcome for outcome in outcomes if outcome is not None]

    async def _send(
        self, batch: Sequence[Message], packed: Sequence[_Packed]
    ) -> list[tuple[_Packed, SendOutcome]]:
        answered: list[SendOutcome] = []
        for start in range(0, len(packed), self._inner.max_batch):
            group = packed[start : start + self._inner.max_batch]
            messages = [_as_message([batch[i] for i in one.indices], one.items) for one in group]
            answered += await self._inner.send(messages)
        return list(zip(packed, answered, strict=True))

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    def _pack(
        self, batch: Sequence[Message], outcomes: list[SendOutcome | None]
    ) -> Iterator[_Packed]:
        """Batches in order, apart by destination; what cannot be an item is settled here."""
        for indices in _by_topic(batch).values():
            packed, size = _Packed([], []), 0
            for index in indices:
                item = _item(batch[index])
                if isinstance(item, Dead):
                    outcomes[index] = item
                    continue
                if packed.items and size + len(item) > self._max_bytes:
                    yield packed
                    packed, size = _Packed([], []), 0
                packed.indices.append(index)
                packed.items.append(item)
                size += len(item) + 1
            if packed.items:
                yield packed


def _by_topic(batch: Sequence[Message]) -> dict[str | None, list[int]]:
    groups: dict[str | None, list[int]] = {}
    for index, message in enumerate(batch):
        groups.setdefault(message.topic, []).append(index)
    return groups


_decode = msgspec.json.Decoder(_Item).decode


def _item(message: Message) -> bytes | Dead:
    try:
        own = _decode(message.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        return Dead(f"cannot be an item of a decision batch: {exc}")
    if own.id or own.id == 0:
        return message.payload
    item = msgspec.json.decode(message.payload, type=dict[str, msgspec.Raw])
    item["id"] = msgspec.Raw(msgspec.json.encode(message.id))
    return msgspec.json.encode(item)


def _as_message(members: Sequence[Message], items: Sequence[bytes]) -> Message:
    """One message with the batch for its payload; the same members always make the same id."""
    first = members[0]
    digest = hashlib.sha256("\n".join(member.id for member in members).encode())
    name = f"batch-{digest.hexdigest()[:32]}"
    due = min(member.due for member in members)
    head = b'{"decision":"ALLOW","tta":%d,"notify_msg":[' % (due // 1000)
    return Message(
        id=name,
        route=first.route,
        key=first.key if len({member.key for member in members}) == 1 else name,
        payload=b"%s%s]}" % (head, b",".join(items)),
        due=due,
        content_type=JSON,
        headers=first.headers if all(m.headers == first.headers for m in members) else None,
        priority=max(member.priority for member in members),
        topic=first.topic,
        attempt=max(member.attempt for member in members),
        claimed=first.claimed,
    )


def _halves(one: _Packed) -> Iterator[_Packed]:
    middle = len(one.indices) // 2
    yield _Packed(one.indices[:middle], one.items[:middle])
    yield _Packed(one.indices[middle:], one.items[middle:])
