"""decision-batch — what Sender 2.0 publishes: a verdict and up to 1000 notifications.

    {"decision": "ALLOW"|"DEFER"|"BLOCK", "tta": epoch s, "notify_msg": [
        {"id", "emissionDate", "name", "originator", "priority", "data": {"method": "sendPush",
         "params": {"type", "portal", "renderParams", "receivers", "templateName", "expireDate"}}}]}

Each notification is a message: ALLOW is due now, DEFER at `tta`, BLOCK is recorded with a reason.
An ALLOW that has expired is recorded as blocked, too; a DEFER that expires before its `tta` is held
until then and blocked when it is decided again. Without a verdict it is due now and Penstock's own
policies decide. An unknown verdict is an error of the whole record. What is kept has the same
shape, with the one notification in it and the sender's own verdict; what goes on is allowed.

decision-items reads the same, but what goes on is the notification alone: for whoever takes them
from the dispatch queue to the provider.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.flow.formats.wire import derived_id, of_any, of_seconds
from penstock.model.draft import MAX_LABEL, DeferredDraft, Draft, block
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.identity import is_key
from penstock.model.message import DEFAULT_PRIORITY, Labels
from penstock.model.times import format_moment
from penstock.model.wire import read_json

MAX_ITEMS = 1000
BLOCKED = "blocked by the sender's decision"
_WORDS = {"low": 2, "normal": 5, "medium": 5, "high": 8}


class Params(msgspec.Struct, frozen=True):
    type: object = None
    receivers: object = None
    expireDate: float | str | None = None  # noqa: N815 - their name


class Data(msgspec.Struct, frozen=True):
    method: object = None
    params: Params = Params()


class Item(msgspec.Struct, frozen=True):
    id: str | int | None = None
    name: object = None
    priority: object = None
    data: Data = Data()


class DecisionBatch(msgspec.Struct, frozen=True):
    notify_msg: list[msgspec.Raw]
    decision: str | None = None
    tta: float | None = None


_batch = msgspec.json.Decoder(DecisionBatch)
_item = msgspec.json.Decoder(Item)


def read(body: bytes, origin: str | None, now: int) -> Sequence[Draft | PenstockError]:
    return _read(body, origin, now, wrapped=True)


def read_items(body: bytes, origin: str | None, now: int) -> Sequence[Draft | PenstockError]:
    return _read(body, origin, now, wrapped=False)


def _read(
    body: bytes, origin: str | None, now: int, *, wrapped: bool
) -> Sequence[Draft | PenstockError]:
    batch = read_json(_batch, body)
    if len(batch.notify_msg) > MAX_ITEMS:
        raise InvalidMessage(
            "notify_msg", f"has {len(batch.notify_msg):,} items, the limit is {MAX_ITEMS:,}"
        )
    due = max(now, _until(batch))
    found: list[Draft | PenstockError] = []
    for index, raw in enumerate(batch.notify_msg):
        item_id = derived_id(origin, index)
        try:
            found.append(_draft(bytes(raw), batch, due, item_id, wrapped=wrapped))
        except PenstockError as exc:
            found.append(InvalidMessage(f"notify_msg[{index}]", exc.message))
    return found


def _until(batch: DecisionBatch) -> int:
    """When the batch may go; 0: now. An unknown verdict is refused."""
    if batch.decision not in {None, "ALLOW", "DEFER", "BLOCK"}:
        raise InvalidMessage("decision", f"{str(batch.decision)[:50]!r} is not ALLOW, DEFER, BLOCK")
    if batch.decision != "DEFER":
        return 0
    if batch.tta is None:
        raise InvalidMessage("tta", "must say until when, for DEFER")
    return of_seconds(batch.tta, "tta")


def _draft(
    raw: bytes, batch: DecisionBatch, due: int, fallback_id: str | None, *, wrapped: bool
) -> Draft:
    item = read_json(_item, raw)
    params = item.data.params
    deferred = batch.decision == "DEFER"
    draft = (DeferredDraft if deferred else Draft)(
        id=fallback_id if item.id is None or item.id == "" else str(item.id),
        key=_receiver(params.receivers),
        payload=msgspec.Raw(_wrap(raw, batch) if wrapped else raw),
        at=format_moment(due) if deferred else None,
        priority=_priority(item.priority),
        labels=_labels(item),
    )
    if batch.decision == "BLOCK":
        return block(draft, BLOCKED)
    if params.expireDate is not None and params.expireDate != "":
        expires = of_any(params.expireDate, "expireDate")
        if expires <= due and not deferred:
            return block(draft, f"expired: {format_moment(expires)} is before it may go")
        draft.expires = format_moment(expires)
    return draft


def alone(body: bytes, places: Sequence[int]) -> Sequence[bytes]:
    """These notifications, each in a batch of its own, to be mended and published again."""
    batch = read_json(_batch, body)
    return [_wrap(bytes(batch.notify_msg[place]), batch) for place in places]


def _wrap(raw: bytes, batch: DecisionBatch) -> bytes:
    """The same shape, with this notification alone and the verdict it came with."""
    verdict = msgspec.json.encode(batch.decision)
    tta = b"" if batch.tta is None else b'"tta":%s,' % msgspec.json.encode(_number(batch.tta))
    return b'{"decision":%s,%s"notify_msg":[%s]}' % (verdict, tta, raw)


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def _receiver(receivers: object) -> str | None:
    """Whom it is about: the first receiver, itself or its id; None: the message's own id."""
    first = receivers[0] if isinstance(receivers, list) and receivers else receivers
    if isinstance(first, dict):
        first = first.get("id")
    if isinstance(first, bool) or not isinstance(first, str | int):
        return None
    return str(first) if is_key(str(first)) else None


def _priority(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if value.isdigit() and len(value) < 10 else _WORDS.get(value.lower())
    if isinstance(value, bool) or not isinstance(value, int):
        return DEFAULT_PRIORITY
    return min(9, max(0, value))


def _labels(item: Item) -> Labels | None:
    method = item.data.method
    channel = method.removeprefix("send").lower() if isinstance(method, str) else None
    labels = Labels(
        channel=_label(channel), campaign=_label(item.name), class_=_label(item.data.params.type)
    )
    return None if labels == Labels() else labels


def _label(value: object) -> str | None:
    usable = isinstance(value, str) and 1 <= len(value) <= MAX_LABEL and value.isprintable()
    return value if usable and isinstance(value, str) else None
