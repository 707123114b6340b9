"""Every call of the HTTP API as a value: what to send and how to read the answer. No I/O.

The two clients only carry these back and forth, so they cannot differ.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from penstock.model.decision import CounterFigure, Decision
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, ServerFault
from penstock.model.message import JSON, Event, Message
from penstock.model.outcome import Receipt
from penstock.model.patch import Patch
from penstock.model.policy import Policy, Suppression
from penstock.model.policy_view import (
    CountersOut,
    DecisionIn,
    DecisionOut,
    counters_of,
    decision_of,
    policies_of,
    suppression_of,
    suppressions_of,
)
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.model.status_view import Readiness, RouteStatus, Stats
from penstock.model.times import format_moment, parse_moment
from penstock.model.view import (
    Accepted,
    BulkResult,
    Erased,
    MessageOut,
    PageOut,
    message_of,
    receipt_of,
    timeline_of,
)
from penstock.sdk.asked import MessageLike, drafted
from penstock.sdk.faults import Told, told

T = TypeVar("T")
Outcome: TypeAlias = Receipt | PenstockError
MessagePage: TypeAlias = tuple[list[Message], str | None]

NDJSON = "application/x-ndjson"
BATCH_MESSAGES = 5_000
BATCH_BYTES = 4 * 1024 * 1024
"""One request of a long batch at most: small enough to be sent again when the server goes away."""


class _Routes(msgspec.Struct):
    items: list[RouteStatus]


class _Line(msgspec.Struct):
    """One outcome of a batch: taken, or not."""

    id: str | None = None
    state: State = State.SCHEDULED
    due: str = ""
    duplicate: bool = False
    error: Told | None = None


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(_Line).decode
_accepted = msgspec.json.Decoder(Accepted).decode
_message = msgspec.json.Decoder(MessageOut).decode
_page = msgspec.json.Decoder(PageOut).decode
_bulk = msgspec.json.Decoder(BulkResult).decode
_erased = msgspec.json.Decoder(Erased).decode
_routes = msgspec.json.Decoder(_Routes).decode
_stats = msgspec.json.Decoder(Stats).decode
_decision = msgspec.json.Decoder(DecisionOut).decode
_counters = msgspec.json.Decoder(CountersOut).decode
_readiness = msgspec.json.Decoder(Readiness).decode


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
    good: frozenset[int] = frozenset({200, 201})
    bulk: bool = False
    """It takes as long as there are messages, so there is no answer that comes too late."""
    counts: bool = False
    """Only the first to ask is told: how many it changed, or that its token was good."""
    ticket: str | None = None
    """What shows that a visitor's call is the visitor's own."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when nobody knows if it arrived.

        Ids make everything idempotent; a version that was just used up is not, and a count of
        what was changed would be that of the second time.
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


def schedule(draft: Draft) -> Call[Receipt]:
    return Call("POST", "/v1/messages", _receipt, body=_encode(_wire(draft)), about_id=draft.id)


def schedule_batch(lines: bytes) -> Call[list[Outcome]]:
    return Call(
        "POST",
        "/v1/messages/batch",
        _outcomes,
        body=lines,
        content_type=NDJSON,
        good=frozenset({200, 207}),
    )


def get(message_id: str) -> Call[Message]:
    return Call("GET", _at(message_id), _read_message, about_id=message_id)


def timeline(message_id: str) -> Call[list[Event]]:
    return Call("GET", _at(message_id), _read_timeline, about_id=message_id)


def list_page(where: Filter, cursor: str | None, limit: int) -> Call[MessagePage]:
    query = {name: str(value) for name, value in _filter(where).items()}
    query["limit"] = str(limit)
    if cursor is not None:
        query["cursor"] = cursor
    return Call("GET", "/v1/messages", _read_page, query=query)


def cancel(message_id: str, version: int | None) -> Call[Message]:
    return _end_call(message_id, version, State.SCHEDULED)


def delete(message_id: str, version: int | None) -> Call[Message]:
    return _end_call(message_id, version, State.DEAD)


def _end_call(message_id: str, version: int | None, state: State) -> Call[Message]:
    """Without `state` a server would delete what it cannot cancel because it is dead."""
    return Call(
        "DELETE",
        _at(message_id),
        _read_message,
        query={"state": state.value},
        version=version,
        about_id=message_id,
    )


def reschedule(message_id: str, change: Patch, version: int | None) -> Call[Message]:
    return Call(
        "PATCH",
        _at(message_id),
        _read_message,
        body=_encode(_wire(change)),
        version=version,
        about_id=message_id,
    )


def release(message_id: str, version: int | None) -> Call[Message]:
    return Call(
        "POST",
        f"{_at(message_id)}/release",
        _read_message,
        body=b"{}",
        version=version,
        about_id=message_id,
    )


def cancel_where(where: Filter, *, dry_run: bool) -> Call[BulkResult]:
    return _bulk_call("/v1/messages/cancel", _bulk_body(where, None, dry_run), dry_run)


def release_where(where: Filter, *, dry_run: bool) -> Call[BulkResult]:
    return _bulk_call("/v1/messages/release", _bulk_body(where, None, dry_run), dry_run)


def reschedule_where(where: Filter, when: Patch, *, dry_run: bool) -> Call[BulkResult]:
    body = {"filter": _filter(where), "dry_run": dry_run, **_wire(when)}
    return _bulk_call("/v1/messages/reschedule", _encode(body), dry_run)


def redrive(where: Filter, *, rate: str | None, dry_run: bool) -> Call[BulkResult]:
    return _bulk_call("/v1/dead/redrive", _bulk_body(where, rate, dry_run), dry_run)


def delete_dead(where: Filter, *, dry_run: bool) -> Call[BulkResult]:
    return _bulk_call("/v1/dead/delete", _bulk_body(where, None, dry_run), dry_run)


def forget(key: str, cursor: str | None) -> Call[Erased]:
    body = {"key": key} if cursor is None else {"key": key, "cursor": cursor}
    return Call("POST", "/v1/forget", _erased, body=_encode(body), bulk=True, counts=True)


def routes() -> Call[list[RouteStatus]]:
    return Call("GET", "/v1/routes", lambda body: _routes(body).items)


def pause(route: str, paused: bool) -> Call[None]:
    verb = "pause" if paused else "resume"
    return Call("POST", f"/v1/routes/{segment(route)}/{verb}", lambda _: None, body=b"{}")


def policies() -> Call[dict[str, Policy]]:
    return Call("GET", "/v1/policies", policies_of)


def put_policy(policy_id: str, policy: Policy) -> Call[None]:
    return Call("PUT", f"/v1/policies/{segment(policy_id)}", lambda _: None, body=_encode(policy))


def drop_policy(policy_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/policies/{segment(policy_id)}", lambda _: None)


def suppressions() -> Call[dict[str, Suppression]]:
    return Call("GET", "/v1/suppressions", suppressions_of)


def suppression(list_id: str) -> Call[Suppression]:
    return Call("GET", f"/v1/suppressions/{segment(list_id)}", suppression_of)


def put_suppression(list_id: str, suppression: Suppression) -> Call[None]:
    path = f"/v1/suppressions/{segment(list_id)}"
    return Call("PUT", path, lambda _: None, body=_encode(suppression))


def drop_suppression(list_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/suppressions/{segment(list_id)}", lambda _: None)


def suppress(list_id: str, key: str) -> Call[None]:
    path = f"/v1/suppressions/{segment(list_id)}/keys/{segment(key)}"
    return Call("PUT", path, lambda _: None, body=b"{}")


def unsuppress(list_id: str, key: str) -> Call[None]:
    path = f"/v1/suppressions/{segment(list_id)}/keys/{segment(key)}"
    return Call("DELETE", path, lambda _: None)


def explain(asked: DecisionIn) -> Call[Decision]:
    return Call(
        "POST", "/v1/decisions", lambda body: decision_of(_decision(body)), body=_encode(asked)
    )


def counters(key: str) -> Call[list[CounterFigure]]:
    path = f"/v1/counters/{segment(key)}"
    return Call("GET", path, lambda body: counters_of(_counters(body)))


def stats() -> Call[Stats]:
    return Call("GET", "/v1/stats", _stats)


def health() -> Call[Readiness]:
    return Call("GET", "/readyz", _readiness, good=frozenset({200, 503}))


@dataclass(slots=True)
class Batch:
    """A piece of a long batch: the lines to send, and outcomes known without asking."""

    lines: bytearray = field(default_factory=bytearray)
    sent: int = 0
    known: list[PenstockError | None] = field(default_factory=list)
    """One a message, in order; None: the server's next outcome."""

    def outcomes(self, answered: list[Outcome]) -> list[Outcome]:
        if len(answered) != self.sent:
            raise ServerFault(
                f"the server answered {len(answered)} outcomes for {self.sent} messages", status=200
            )
        following = iter(answered)
        return [next(following) if known is None else known for known in self.known]


def batches(messages: Iterable[MessageLike], make_id: Callable[[], str]) -> Iterator[Batch]:
    """Cut an iterable of any length into requests; it is read only as far as needed."""
    batch = Batch()
    for item in messages:
        draft = drafted(item)
        if isinstance(draft, PenstockError):
            batch.known.append(draft)
        else:
            batch.lines += _encode(_wire(with_id(draft, make_id), one_line=True)) + b"\n"
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


def _at(message_id: str) -> str:
    return f"/v1/messages/{segment(message_id)}"


def segment(text: str) -> str:
    """One path segment whatever the text: dots too, which clients and proxies would walk."""
    return quote(text, safe="").replace(".", "%2E")


def _wire(asked: Draft | Patch, *, one_line: bool = False) -> dict[str, object]:
    """What was given, and nothing else; where one line is one item, longer JSON as base64."""
    given: dict[str, object] = {
        name: value
        for name in asked.__struct_fields__
        if (value := getattr(asked, name)) is not None and value is not msgspec.UNSET
    }
    raw = b"" if asked.payload is msgspec.UNSET else bytes(asked.payload)
    if one_line and b"\n" in raw:
        del given["payload"]
        given["payload_base64"] = base64.b64encode(raw).decode()
        given.setdefault("content_type", JSON)
    return given


def _filter(where: Filter) -> dict[str, str]:
    words = {"state": where.state, "route": where.route, "key": where.key, "error": where.error}
    given = {name: str(value) for name, value in words.items() if value is not None}
    for name, moment in (("due_from", where.due_from), ("due_to", where.due_to)):
        if moment is not None:
            given[name] = format_moment(moment)
    return given


def _bulk_body(where: Filter, rate: str | None, dry_run: bool) -> bytes:
    body: dict[str, object] = {"filter": _filter(where), "dry_run": dry_run}
    if rate is not None:
        body["rate"] = rate
    return _encode(body)


def _bulk_call(path: str, body: bytes, dry_run: bool) -> Call[BulkResult]:
    return Call("POST", path, _bulk, body=body, bulk=True, counts=not dry_run)


def _receipt(body: bytes) -> Receipt:
    return receipt_of(_accepted(body))


def _outcomes(body: bytes) -> list[Outcome]:
    return [_outcome(_line(line)) for line in body.splitlines() if line]


def _outcome(line: _Line) -> Outcome:
    if line.error is not None or line.id is None:
        return told(line.error or Told("internal", "an outcome without an id"))
    return Receipt(line.id, line.state, parse_moment(line.due, "due"), line.duplicate)


def _read_message(body: bytes) -> Message:
    return message_of(_message(body))


def _read_timeline(body: bytes) -> list[Event]:
    return timeline_of(_message(body))


def _read_page(body: bytes) -> MessagePage:
    page = _page(body)
    return [message_of(item) for item in page.items], page.next
