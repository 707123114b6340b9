"""Every call of the HTTP API as a value: the request and how to read its answer. No I/O.

Method, path and the answer's schema come from the table of verbs (`penstock.api.verbs`). The two
clients only transport calls, so they cannot differ.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from penstock.api.verbs import BY_NAME, SCHEMAS, load
from penstock.model.draft import Draft
from penstock.model.errors import Overloaded, PenstockError, ServerFault, StoreUnavailable
from penstock.model.message import JSON
from penstock.model.outcome import Receipt
from penstock.model.patch import Patch
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.model.times import format_moment, parse_moment
from penstock.sdk.asked import MessageLike, drafted, page_size
from penstock.sdk.faults import Told, told

T = TypeVar("T")
Outcome: TypeAlias = Receipt | PenstockError

NDJSON = "application/x-ndjson"
BATCH_MESSAGES = 5_000
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of one request of a long batch: few enough to be sent again after a server failure."""
VALUES: Mapping[str, str] = {
    "Accepted": "penstock.model.view:receipt_of",
    "Message": "penstock.model.view:message_of",
    "MessagePage": "penstock.model.view:page_of",
    "Routes": "penstock.model.status_view:routes_of",
    "Decision": "penstock.model.policy_view:decision_of",
    "Counters": "penstock.model.policy_view:counters_of",
    "RoomPage": "penstock.model.room_view:page_of",
    "RulePage": "penstock.model.recurrence_view:page_of",
}
"""Schema → the function that turns an answer into the value a program gets; else the struct is.

Imported when a call needs it: a client that only schedules loads neither policies nor rooms.
"""
READERS: Mapping[str, str] = {
    "scheduleBatch": "penstock.sdk.calls:outcomes",
    "policies": "penstock.model.policy_view:policies_of",
    "suppressions": "penstock.model.policy_view:suppressions_of",
    "suppression": "penstock.model.policy_view:suppression_of",
}
"""Verb → reader of the whole body, where the schema is not enough."""
BODIES: Mapping[str, str] = {
    "putPolicy": "penstock.sdk.rules:policy_value",
    "putSuppression": "penstock.sdk.rules:suppression_value",
    "explain": "penstock.sdk.rules:question",
    "putRoom": "penstock.sdk.rules:room_draft",
    "putRule": "penstock.sdk.recurring:rule_value",
    "previewRule": "penstock.sdk.recurring:rule_value",
}
"""Verb → function that makes its body from a program's arguments."""


TIMELINE = "penstock.model.view:timeline_of"
ONLY_CANCEL = {"state": State.SCHEDULED.value}
"""Without it a server would delete a message that it cannot cancel because it is dead."""
ONLY_DELETE = {"state": State.DEAD.value}
EITHER = frozenset({200, 503})
"""A server that is not ready answers in the same shape as one that is."""


class _Line(msgspec.Struct):
    """One outcome of a batch: a receipt or an error."""

    id: str | None = None
    state: State = State.SCHEDULED
    due: str = ""
    duplicate: bool = False
    error: Told | None = None


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(_Line).decode


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the reading of its answer."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    version: int | None = None
    about_id: str | None = None
    about_kind: str = "message"
    """The kind of object that `about_id` names, in the words of an error."""
    good: frozenset[int] = frozenset({200, 201})
    bulk: bool = False
    """Its duration grows with the number of messages, so no answer is too late."""
    counts: bool = False
    """A repeated call would get another answer than the first: a count, or whether a token is
    valid.
    """
    ticket: str | None = None
    """The secret that proves that a visitor's call is the visitor's own."""

    @property
    def repeatable(self) -> bool:
        """True if it may be sent again when it is unknown whether it arrived.

        Ids make everything idempotent; a version that was just used up is not, and a count of
        changes would be that of the second time.
        """
        return self.version is None and not self.counts

    def headers(self) -> dict[str, str]:
        headers = {} if self.method == "GET" else {"content-type": self.content_type}
        if self.version is not None:
            headers["if-match"] = f'"{self.version}"'
        if self.ticket is not None:
            headers["x-ticket"] = self.ticket
        return headers

    def answer(self, body: bytes) -> T:
        try:
            return self.read(body)
        except (msgspec.DecodeError, msgspec.ValidationError) as exc:
            raise ServerFault(
                f"what answered {self.method} {self.path} is not Penstock ({exc})", status=200
            ) from exc


def call(
    name: str,
    *segments: str,
    content: object = None,
    query: Mapping[str, str | None] | None = None,
    dry_run: bool = False,
    value: str | None = None,
    **more: Any,
) -> Call[T]:
    """The call of a verb of the table; `segments` fill the names in its path, in their order.

    `content` becomes the body: a struct, or a mapping, whose fields of None are left out. `value`
    names the reader of the answer in place of the usual; `more` are fields of the Call.
    """
    verb = BY_NAME[name]
    path = verb.path
    for part, text in zip(verb.in_path, segments, strict=True):
        path = path.replace(f"{{{part}}}", segment(text))
    body: bytes | None = None
    if name in BODIES:
        body = _encode(load(BODIES[name])(content))
    elif content is not None:
        body = _encode(_present(content) if isinstance(content, dict) else content)
    elif verb.method in {"POST", "PUT", "PATCH"}:
        body = b"{}"
    known = {
        "good": frozenset(status for status in verb.answers if status < 300),
        "body": body,
        "query": _present(query or {}),
        "bulk": verb.bulk,
        "counts": verb.counts and not dry_run,
        **more,
    }
    return Call(verb.method, path, _reader(name, value), **known)


def about(name: str, message_id: str, **more: Any) -> Call[T]:
    """The call of a verb about one message, which errors name."""
    return call(name, message_id, about_id=message_id, **more)


def about_rule(name: str, rule_id: str, **more: Any) -> Call[T]:
    """The call of a verb about one recurring rule, which errors name."""
    return call(name, rule_id, about_id=rule_id, about_kind="rule", **more)


def matching(name: str, where: Filter, *, dry_run: bool, **fields: object) -> Call[T]:
    """The call of a verb that changes every message that matches."""
    content = {"filter": wire_filter(where), "dry_run": dry_run, **fields}
    return call(name, content=content, dry_run=dry_run)


def page(
    name: str, cursor: str | None, limit: int, query: Mapping[str, str] | None = None
) -> Call[T]:
    """The call of a verb that lists."""
    return call(name, query={**(query or {}), "limit": str(page_size(limit)), "cursor": cursor})


def schedule(draft: Draft) -> Call[Receipt]:
    return call("schedule", content=wire(draft), about_id=draft.id)


def schedule_batch(lines: bytes) -> Call[list[Outcome]]:
    return call("scheduleBatch", body=lines, content_type=NDJSON)


def schedule_lines(lines: Sequence[bytes]) -> Call[list[Outcome]]:
    """One batch of these lines, as `in_one_line` made them: an outcome each, in order."""

    def read(body: bytes) -> list[Outcome]:
        return _as_many(outcomes(body), len(lines))

    return replace(schedule_batch(b"\n".join(lines)), read=read)


def in_one_line(draft: Draft) -> bytes:
    """A message of a batch."""
    return _encode(wire(draft, one_line=True))


def is_busy(outcome: object) -> bool:
    """True if one message of a batch was refused only for now."""
    return isinstance(outcome, Overloaded | StoreUnavailable)


@cache
def _reader(name: str, value: str | None) -> Callable[[bytes], Any]:
    """The reader of a verb's answer."""
    if value is None and name in READERS:
        reader: Callable[[bytes], Any] = load(READERS[name])
        return reader
    schema = next(iter(BY_NAME[name].answers.values()))[1] or ""
    if schema not in SCHEMAS:
        return lambda _: None
    decode = msgspec.json.Decoder(load(SCHEMAS[schema])).decode
    value = value or VALUES.get(schema)
    if value is None:
        return decode
    then = load(value)
    return lambda body: then(decode(body))


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(slots=True)
class Batch:
    """A piece of a long batch: the lines to send, and outcomes known without asking."""

    lines: bytearray = field(default_factory=bytearray)
    sent: int = 0
    known: list[PenstockError | None] = field(default_factory=list)
    """One per message, in order; None: the server's next outcome."""

    def outcomes(self, answered: list[Outcome]) -> list[Outcome]:
        following = iter(_as_many(answered, self.sent))
        return [next(following) if known is None else known for known in self.known]


def _as_many(answered: list[Outcome], sent: int) -> list[Outcome]:
    if len(answered) != sent:
        raise ServerFault(
            f"the server answered {len(answered)} outcomes for {sent} messages", status=200
        )
    return answered


def batches(messages: Iterable[MessageLike], make_id: Callable[[], str]) -> Iterator[Batch]:
    """Cut an iterable of any length into requests; it is read only as far as needed."""
    batch = Batch()
    for item in messages:
        draft = drafted(item)
        if isinstance(draft, PenstockError):
            batch.known.append(draft)
        else:
            batch.lines += in_one_line(with_id(draft, make_id)) + b"\n"
            batch.known.append(None)
            batch.sent += 1
        if len(batch.known) >= BATCH_MESSAGES or len(batch.lines) >= BATCH_BYTES:
            yield batch
            batch = Batch()
    if batch.known:
        yield batch


def with_id(draft: Draft, make_id: Callable[[], str]) -> Draft:
    """Named before the first try, so that every further try is the same message."""
    return draft if draft.id is not None else msgspec.structs.replace(draft, id=make_id())


def segment(text: str) -> str:
    """Encode a text as one path segment: dots too, which clients and proxies would resolve."""
    return quote(text, safe="").replace(".", "%2E")


def wire(draft: Draft | Patch, *, one_line: bool = False) -> dict[str, object]:
    """The fields that are set; where one line is one item, JSON of several lines as base64."""
    fields: dict[str, object] = {
        name: value
        for name in draft.__struct_fields__
        if (value := getattr(draft, name)) is not None and value is not msgspec.UNSET
    }
    raw = b"" if draft.payload is msgspec.UNSET else bytes(draft.payload)
    if one_line and b"\n" in raw:
        del fields["payload"]
        fields["payload_base64"] = base64.b64encode(raw).decode()
        fields.setdefault("content_type", JSON)
    return fields


def wire_filter(where: Filter) -> dict[str, str]:
    words = {"state": where.state, "route": where.route, "key": where.key, "error": where.error}
    fields = {name: str(value) for name, value in words.items() if value is not None}
    for name, moment in (("due_from", where.due_from), ("due_to", where.due_to)):
        if moment is not None:
            fields[name] = format_moment(moment)
    return fields


def outcomes(body: bytes) -> list[Outcome]:
    """The answer to a batch."""
    return [_outcome(_line(line)) for line in body.splitlines() if line]


def _outcome(line: _Line) -> Outcome:
    if line.error is not None or line.id is None:
        return told(line.error or Told("internal", "an outcome without an id"))
    return Receipt(line.id, line.state, parse_moment(line.due, "due"), line.duplicate)
