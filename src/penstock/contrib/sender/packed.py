"""Several messages as one of the receiver's: a decision batch, in front of any sink.

    {"decision": "ALLOW", "tta": 1767225600, "notify_msg": [item, item, …]}

A payload is an item as it is, or a decision batch whose items join others of the same `tta` and the
same further fields (`process`, `order` …), which the batch keeps. At most 1000 items that are due
together go into one batch. An item without an id gets its message's, so that a receiver that splits
the batch can recognise repeats. All messages of a batch share the outcome that the sink reports for
it; a batch that is refused for good is sent again in halves, so that only the message at fault is
dead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from penstock.contrib.sender.fields import other_fields
from penstock.model.isolation import Isolation
from penstock.model.message import JSON, Message
from penstock.model.outcome import Dead, SendOutcome
from penstock.ports.sink import Sink

MAX_ITEMS = 1_000
MAX_BYTES = 512 * 1024
"""Most bytes of one batch, unless a single item is larger: brokers accept a megabyte by default."""


class _Payload(msgspec.Struct):
    """The relevant fields of an item, or of a batch of items."""

    id: str | int | None = None
    tta: float | None = None
    notify_msg: list[msgspec.Raw] | None = None


class _Items(msgspec.Struct, frozen=True):
    """The items that one message adds to a batch."""

    tta: int
    more: bytes
    """Further fields of its original batch, as JSON: `"name":value,` each."""
    size: int
    items: list[bytes]


class _Packed(msgspec.Struct):
    """One batch: the index of each of its messages, with its items."""

    members: list[tuple[int, _Items]] = []
    number: int = 0
    size: int = 0

    def add(self, index: int, items: _Items) -> None:
        self.members.append((index, items))
        self.number += len(items.items)
        self.size += items.size


class PackedSink:
    """Packs messages into batches for the sink behind it."""

    max_batch = MAX_ITEMS

    def __init__(self, inner: Sink, *, max_bytes: int = MAX_BYTES) -> None:
        self.name = inner.name
        self.concurrency = max(inner.concurrency, 2 * MAX_ITEMS)
        self._inner = inner
        self._max_bytes = max_bytes

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        outcomes: list[SendOutcome | None] = [None] * len(batch)
        isolation = Isolation(*(packed.members for packed in self._pack(batch, outcomes)))
        while parts := isolation.take(self._inner.max_batch):
            answered = await self._inner.send([_as_message(batch, part) for part in parts])
            for part, outcome in zip(parts, answered, strict=True):
                if not isinstance(outcome, Dead):
                    isolation.passed()
                elif isolation.split(part):
                    continue
                for index, _ in part:
                    outcomes[index] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()

    def _pack(
        self, batch: Sequence[Message], outcomes: list[SendOutcome | None]
    ) -> Iterator[_Packed]:
        """Batches in order, separated by destination, tta and further fields; messages without
        items are settled at once."""
        open_ones: dict[tuple[str | None, int, bytes], _Packed] = {}
        for index, message in enumerate(batch):
            items = _items(message)
            if isinstance(items, Dead):
                outcomes[index] = items
                continue
            group = (message.topic, items.tta, items.more)
            packed = open_ones.get(group)
            if packed is None or not self._takes(packed, items):
                if packed is not None:
                    yield packed
                packed = open_ones[group] = _Packed()
            packed.add(index, items)
        yield from open_ones.values()

    def _takes(self, packed: _Packed, more: _Items) -> bool:
        number, size = packed.number + len(more.items), packed.size + more.size
        return number <= MAX_ITEMS and size <= self._max_bytes


_decode = msgspec.json.Decoder(_Payload).decode


def _items(message: Message) -> _Items | Dead:
    more = b""
    try:
        own = _decode(message.payload)
        if own.notify_msg is None:
            items = [_identified(message.payload, own.id, message.id)]
        else:
            more = other_fields(message.payload)
            raws = [bytes(raw) for raw in own.notify_msg]
            names = [message.id] + [f"{message.id}:{n}" for n in range(1, len(raws))]
            items = [
                _identified(raw, _decode(raw).id, name)
                for raw, name in zip(raws, names, strict=False)
            ]
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        return Dead(f"cannot be an item of a decision batch: {exc}")
    if not items:
        return Dead("a decision batch without items")
    tta = message.due // 1000 if own.tta is None else int(own.tta)
    return _Items(tta, more, sum(map(len, items)) + len(more), items)


def _identified(raw: bytes, own: str | int | None, name: str) -> bytes:
    if own or own == 0:
        return raw
    item = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    item["id"] = msgspec.Raw(msgspec.json.encode(name))
    return msgspec.json.encode(item)


def _as_message(batch: Sequence[Message], part: Sequence[tuple[int, _Items]]) -> Message:
    """One message with these items as payload; the same members always make the same id."""
    members, brought = [batch[index] for index, _ in part], [items for _, items in part]
    first = members[0]
    digest = hashlib.sha256("\n".join(member.id for member in members).encode())
    name = f"batch-{digest.hexdigest()[:32]}"
    items = b",".join(item for items in brought for item in items.items)
    return Message(
        id=name,
        route=first.route,
        key=first.key if len({member.key for member in members}) == 1 else name,
        payload=b'{"decision":"ALLOW","tta":%d,%s"notify_msg":[%s]}'
        % (brought[0].tta, brought[0].more, items),
        due=min(member.due for member in members),
        content_type=JSON,
        headers=first.headers if all(m.headers == first.headers for m in members) else None,
        priority=max(member.priority for member in members),
        topic=first.topic,
        attempt=max(member.attempt for member in members),
        claimed=first.claimed,
    )
