"""decision-batch — what Sender 2.0 publishes: a verdict and up to 1000 notifications.

    {"decision": "ALLOW"|"DEFER"|"BLOCK"|"DROP", "tta": epoch s, "notify_msg": [
        {"id", "emissionDate", "name", "originator", "priority", "data": {"method": "sendPush",
         "params": {"type", "portal", "renderParams", "receivers", "templateName", "expireDate"}}}]}

Each notification is a message: ALLOW is due now, DEFER at `tta`, BLOCK (or DROP) is recorded with
a reason. Its key is the first receiver, further receivers are the label `keys`: caps count it for
each of them. `data.method` may choose the route. Keys of a batch that are not named here
(`process`, `order` …) stay with each of its notifications and are handed on.
An ALLOW that has expired is recorded as blocked, too; a DEFER that expires before its `tta` is held
until then and blocked when it is decided again. Without a verdict it is due now and Penstock's own
policies decide. An unknown verdict is an error of the whole record. What is kept has the same
shape, with the one notification in it and the sender's own verdict; what goes on is allowed.

decision-items reads the same, but what goes on is the notification alone: for a program that
takes them from the dispatch queue to the provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from penstock.contrib.sender.fields import other_fields
from penstock.flow.formats import Format
from penstock.flow.formats.wire import derived_id, of_any, of_seconds
from penstock.model.draft import MAX_LABEL, DeferredDraft, Draft, block, is_key
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE, Labels
from penstock.model.times import format_moment
from penstock.model.wire import read_json

MAX_ITEMS = 1000
RECORDS = 20
"""Records read at once: one may hold a thousand notifications."""
VERDICTS = {"ALLOW": "ALLOW", "DEFER": "DEFER", "BLOCK": "BLOCK", "DROP": "BLOCK"}
"""A sender's verdict → the decision taken."""
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


class _Opened(msgspec.Struct, frozen=True):
    """A decoded batch, with the values that its notifications share."""

    batch: DecisionBatch
    verdict: str | None
    """ALLOW, DEFER, BLOCK; None leaves it to the policies."""
    due: int
    head: bytes
    """The batch without its notifications, as JSON, up to their array."""
    routes: Mapping[str, str]
    """Method (in lower case) → route."""


def read(
    body: bytes, origin: str | None, now: int, routes: Mapping[str, str] | None = None
) -> Sequence[Draft | PenstockError]:
    """The drafts of a batch; `routes` maps a method (in lower case) to its route."""
    return _read(body, origin, now, routes or {}, wrapped=True)


def read_items(
    body: bytes, origin: str | None, now: int, routes: Mapping[str, str] | None = None
) -> Sequence[Draft | PenstockError]:
    """As `read`, with the notification alone as payload."""
    return _read(body, origin, now, routes or {}, wrapped=False)


def _read(
    body: bytes, origin: str | None, now: int, routes: Mapping[str, str], *, wrapped: bool
) -> Sequence[Draft | PenstockError]:
    batch = read_json(_batch, body)
    if len(batch.notify_msg) > MAX_ITEMS:
        raise InvalidMessage(
            "notify_msg", f"has {len(batch.notify_msg):,} items, the limit is {MAX_ITEMS:,}"
        )
    verdict = _verdict(batch)
    due = max(now, _until(batch))
    opened = _Opened(batch, verdict, due, _head(body, batch), routes)
    found: list[Draft | PenstockError] = []
    for index, raw in enumerate(batch.notify_msg):
        item_id = derived_id(origin, index)
        try:
            found.append(_draft(bytes(raw), opened, item_id, wrapped=wrapped))
        except PenstockError as exc:
            found.append(InvalidMessage(f"notify_msg[{index}]", exc.message))
    return found


def _verdict(batch: DecisionBatch) -> str | None:
    if batch.decision is None:
        return None
    verdict = VERDICTS.get(batch.decision)
    if verdict is None:
        raise InvalidMessage("decision", f"{batch.decision[:50]!r} is not {', '.join(VERDICTS)}")
    return verdict


def _until(batch: DecisionBatch) -> int:
    """The moment from which the batch may be sent; 0 for now."""
    if batch.decision != "DEFER":
        return 0
    if batch.tta is None:
        raise InvalidMessage("tta", "must say until when, for DEFER")
    return of_seconds(batch.tta, "tta")


def _draft(raw: bytes, opened: _Opened, fallback_id: str | None, *, wrapped: bool) -> Draft:
    item = read_json(_item, raw)
    params = item.data.params
    due, deferred = opened.due, opened.verdict == "DEFER"
    receivers = _receivers(params.receivers)
    draft = (DeferredDraft if deferred else Draft)(
        id=fallback_id if item.id is None or item.id == "" else str(item.id),
        route=_route(item.data.method, opened.routes),
        key=receivers[0] if receivers else None,
        payload=msgspec.Raw(_wrap(raw, opened.head) if wrapped else raw),
        at=format_moment(due) if deferred else None,
        priority=_priority(item.priority),
        labels=_labels(item, receivers[1:]),
    )
    if opened.verdict == "BLOCK":
        return block(draft, BLOCKED)
    if params.expireDate is not None and params.expireDate != "":
        expires = of_any(params.expireDate, "expireDate")
        if expires <= due and not deferred:
            return block(draft, f"expired: {format_moment(expires)} is before it may go")
        draft.expires = format_moment(expires)
    return draft


def alone(body: bytes, indexes: Sequence[int]) -> Sequence[bytes]:
    """These notifications, each in a batch of its own, to be corrected and published again."""
    batch = read_json(_batch, body)
    head = _head(body, batch)
    return [_wrap(bytes(batch.notify_msg[index]), head) for index in indexes]


def _head(body: bytes, batch: DecisionBatch) -> bytes:
    """The batch as JSON, with its own verdict, up to the array of its notifications."""
    verdict = msgspec.json.encode(batch.decision)
    tta = b"" if batch.tta is None else b'"tta":%s,' % msgspec.json.encode(_number(batch.tta))
    return b'{"decision":%s,%s%s"notify_msg":[' % (verdict, tta, other_fields(body))


def _wrap(raw: bytes, head: bytes) -> bytes:
    """The same shape, with this notification alone."""
    return b"%s%s]}" % (head, raw)


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def _route(method: object, routes: Mapping[str, str]) -> str:
    """The route of a method; empty for the source's own route."""
    return routes.get(method.lower(), DEFAULT_ROUTE) if isinstance(method, str) else DEFAULT_ROUTE


def _receivers(receivers: object) -> tuple[str, ...]:
    """The distinct receivers: themselves or their ids, if valid as keys."""
    each = receivers if isinstance(receivers, list) else [receivers]
    return tuple(dict.fromkeys(_keys(each)))


def _keys(receivers: Sequence[object]) -> Iterator[str]:
    for receiver in receivers:
        named = receiver.get("id") if isinstance(receiver, dict) else receiver
        if isinstance(named, str | int) and not isinstance(named, bool) and is_key(str(named)):
            yield str(named)


def _priority(value: object) -> int:
    if isinstance(value, str):
        value = int(value) if value.isdigit() and len(value) < 10 else _WORDS.get(value.lower())
    if isinstance(value, bool) or not isinstance(value, int):
        return DEFAULT_PRIORITY
    return min(9, max(0, value))


def _labels(item: Item, further: tuple[str, ...]) -> Labels | None:
    method = item.data.method
    channel = method.removeprefix("send").lower() if isinstance(method, str) else None
    labels = Labels(
        channel=_label(channel),
        campaign=_label(item.name),
        class_=_label(item.data.params.type),
        keys=further,
    )
    return None if labels == Labels() else labels


def _label(value: object) -> str | None:
    usable = isinstance(value, str) and 1 <= len(value) <= MAX_LABEL and value.isprintable()
    return value if usable and isinstance(value, str) else None


DECISION_BATCH = Format(read, alone=alone, records=RECORDS, by_method=read)
DECISION_ITEMS = Format(read_items, alone=alone, records=RECORDS, by_method=read_items)
