"""The operations on messages, each a step over a transaction; their statements are in messages.sql.

    put · claim, extend, reap · settle · amend · find, get · purge · pause · erasures

An operation loads the records of its batch, takes the pure step of `penstock.model.lifecycle` for
each and writes the changes together. Three are hot and exist a second time, in SQL: put of new ids
(`Tx.put_new`), claim (`lease`) and delivery (`deliver`); tests hold each equal to its step.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.lifecycle import Record, Step
from penstock.model.message import JSON, Event, Labels, Message, NewMessage
from penstock.model.outcome import (
    Action,
    Amended,
    Amendment,
    Claim,
    Reaped,
    Receipt,
    Settlement,
)
from penstock.model.size import ANY_SIZE
from penstock.model.state import PURGEABLE, State
from penstock.model.timeline import lines_of
from penstock.model.verdict import Decided
from penstock.stores.sql.tx import Row, Tx

log = logging.getLogger("penstock.stores.sql")

STATES: Final = (
    State.SCHEDULED,
    State.LEASED,
    State.DELIVERED,
    State.DEAD,
    State.BLOCKED,
    State.EXPIRED,
    State.CANCELLED,
)
"""State ↔ number in the table; the order may never change."""
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}

EXTRAS: Final = {"labels": "TEXT", "topic": "TEXT"}
"""Columns that few messages use, with their types on PostgreSQL."""
WORDS: Final = {
    "extras": ", ".join(EXTRAS),
    "extra_values": ", ".join("?" for _ in EXTRAS),
    "extra_arrays": ", ".join(f"CAST(? AS {kind}[])" for kind in EXTRAS.values()),
    "set_extras": ", ".join(f"{name} = :{name}" for name in EXTRAS),
}
"""Field → its name in statements."""

_encode = msgspec.json.Encoder().encode
_headers: Final = msgspec.json.Decoder(dict[str, str])
_labels: Final = msgspec.json.Decoder(Labels)
_decided: Final = msgspec.json.Decoder(Decided)
_seqs: Final = msgspec.json.Decoder(list[int])
_PAYLOAD, _HEADERS, _LABELS, _DECIDED = 4, 6, 7, 21
Unreadable: Final = msgspec.DecodeError
"""A column of a row is not what Penstock writes there: another program wrote it."""
_DECODED: Final[tuple[tuple[int, str, msgspec.json.Decoder[Any]], ...]] = (
    (_HEADERS, "headers", _headers),
    (_LABELS, "labels", _labels),
    (_DECIDED, "decided", _decided),
)
"""Columns of JSON: place in a row, name, decoder."""

MAX_EVENTS = 200
"""Events stored per message; the oldest are dropped first."""
_DELIVERED = State.DELIVERED
_SEQ = itemgetter(0)
_DUE_AND_ID = itemgetter(9, 1)
_PRIORITY = itemgetter(11)
_ERASE, _AFTER_ERASE = "erase:", "erase;"
"""The prefix of the name of a fact that a message is to be erased, and the end of all of these."""


class Changes:
    """Collects the changes of one operation, which are written together."""

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._with_content: set[int] = set()
        self._events: list[dict[str, Any]] = []
        self._settled: Counter[int] = Counter()
        self._retired: list[int] = []
        self._removed: list[int] = []

    def add(self, step: Step[Any], *, content: bool = False) -> None:
        """The record and the lines of a step; with `content` its payload and headers too."""
        record = step.record
        if record is None:
            return
        seq = record.message.ref
        self._records[seq] = record
        if content:
            self._with_content.add(seq)
        self._events += [
            {"seq": seq, "at": e.at, "event": e.event, "detail": e.detail, "attempt": e.attempt}
            for e in step.events
        ]
        if record.message.state in PURGEABLE:
            self._retired.append(seq)

    def settle(self, token: int, number: int = 1) -> None:
        """Note that so many messages of the lease are settled."""
        self._settled[token] += number

    def retire(self, seqs: Iterable[int]) -> None:
        """These are settled for good, and were written already."""
        self._retired += seqs

    def remove(self, seq: int) -> None:
        self._removed.append(seq)

    def save(self, tx: Tx, now: int) -> None:
        if self._records:
            self._write(tx)
        if self._settled:
            self._close_leases(tx)
        if self._retired:
            seqs = json_array(self._retired)
            tx.execute("retire", {"at": now, "count": len(self._retired), "seqs": seqs})
        if self._removed:
            _remove(tx, self._removed)

    def _close_leases(self, tx: Tx) -> None:
        """Count down the leases; one of which nothing is left is dropped, mostly at once."""
        counts = [(token, number) for token, number in self._settled.items()]
        whole = tx.each("end_lease", counts)
        parts = [(n, token) for (token, n), row in zip(counts, whole, strict=True) if not row]
        if parts:
            left = tx.each("close_lease", parts)
            done = [(t,) for (_, t), row in zip(parts, left, strict=True) if row and row[0] <= 0]
            if done:
                tx.many("drop_lease", done)

    def _write(self, tx: Tx) -> None:
        plain = [
            progress_values(record)
            for seq, record in self._records.items()
            if seq not in self._with_content
        ]
        if plain:
            tx.many("write", plain)
        if self._with_content:
            changed = [self._records[seq] for seq in self._with_content]
            values = [progress_values(one) | content_values(one.message) for one in changed]
            tx.many("write_content", values)
        if self._events:
            self._note(tx)
        for record in self._records.values():
            if record.message.state is State.SCHEDULED:
                wake(tx, record.message.route, record.message.due)

    def _note(self, tx: Tx) -> None:
        numbers = [row[0] for row in tx.each("add_event", self._events)]
        long = {
            line["seq"]: number - MAX_EVENTS
            for line, number in zip(self._events, numbers, strict=True)
            if number > MAX_EVENTS
        }
        if long:
            tx.many("trim_events", list(long.items()))


def _remove(tx: Tx, seqs: Sequence[int]) -> None:
    """Keep nothing of these messages; none of them is leased."""
    values = {"seqs": tx.array(seqs)}
    tx.execute("remove", values)
    tx.execute("remove_events", values)


# --- put -----------------------------------------------------------------------------------


def put(tx: Tx, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
    """Store new messages, and let `on_conflict` decide about known ones. One receipt each."""
    new = tx.put_new(messages, now)
    ending = [m.id for m in messages if m.blocked is not None or m.dead is not None]
    if new is None and not ending:
        _wake(tx, messages)
        return [Receipt(m.id, State.SCHEDULED, m.due) for m in messages]
    fresh = {m.id for m in messages} if new is None else new
    again = [m.id for m in messages if m.id not in fresh]
    if new is not None and len(fresh) + len(again) < len(messages):
        again = [m.id for m in messages]  # the same new id twice
    rows = tx.query("known", {"ids": tx.array([*ending, *again])})
    known = {record.message.id: record for record in map(to_record, rows)}
    changes = Changes()
    receipts = []
    for message in messages:
        is_new = message.id in fresh
        if is_new:
            fresh.discard(message.id)  # again in this batch: a duplicate
            step = _begin(tx, known, message, now)
        else:
            step = lifecycle.put(known[message.id], message, now)
        receipts.append(step.answer)
        if step.record is not None and step.record is not known[message.id]:
            changes.add(step, content=not is_new)
            known[message.id] = step.record
    changes.save(tx, now)
    return receipts


def _begin(tx: Tx, known: dict[str, Record], message: NewMessage, now: int) -> Step[Receipt]:
    """A message that was just put; one that arrived with an ending is settled in the same step."""
    receipt = Receipt(message.id, State.SCHEDULED, message.due)
    if message.ending is None:
        wake(tx, message.route, message.due)
        return Step(receipt, None)
    ended = replace(lifecycle.accepted(message, now), ref=known[message.id].message.ref)
    return Step(Receipt(message.id, ended.state, ended.due), Record(ended))


def wake(tx: Tx, route: str, due: int) -> None:
    """After the commit, wake the route's lanes for messages due then."""
    if due < tx.wakes.get(route, due + 1):
        tx.wakes[route] = due


def _wake(tx: Tx, messages: Sequence[NewMessage]) -> None:
    routes = {message.route for message in messages}
    if len(routes) == 1:
        wake(tx, routes.pop(), min([message.due for message in messages]))
        return
    for message in messages:
        wake(tx, message.route, message.due)


# --- claim, extend, reap -------------------------------------------------------------------


def claim(tx: Tx, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE) -> Claim:
    """Lease due messages in order; when none is due, nothing is written."""
    if limit <= 0 or tx.one("is_paused", (route,)):
        return Claim(0)
    rows: list[Row] = []
    stopped = False
    with closing(tx.stream("due", {"route": route, "limit": limit, "now": now})) as due:
        for row in due:
            max_bytes -= len(row[_PAYLOAD]) + (len(row[_HEADERS]) if row[_HEADERS] else 0)
            if max_bytes < 0 and rows:
                stopped = True  # later rows are not read
                break
            rows.append(row)
    token, messages = lease_rows(tx, route, rows, lease, now)
    next_due = None
    if len(messages) < limit and not stopped:
        (next_due,) = tx.one("next_due", {"route": route})
    return Claim(token, messages, next_due, stopped)


def lease_rows(
    tx: Tx, route: str, rows: list[Row], lease: int, now: int
) -> tuple[int, tuple[Message, ...]]:
    """`lifecycle.lease` of the rows that were just read; of none, nothing is written.

    Rows that cannot be read are dead after this, and not among the messages.
    """
    if not rows:
        return 0, ()
    rows.sort(key=_DUE_AND_ID)
    rows.sort(key=_PRIORITY, reverse=True)  # stable: equal ones stay in their order
    token = tx.new_token()
    seqs = list(map(_SEQ, rows))
    tx.execute("lease", {"seqs": tx.array(seqs), "token": token, "now": now})
    tx.execute("add_lease", (token, route, now + lease, len(rows), json_array(seqs)))
    try:
        return token, tuple(map(to_message, rows))
    except Unreadable:
        return token, _set_aside(tx, rows, token, now)


def _set_aside(tx: Tx, rows: Sequence[Row], token: int, now: int) -> tuple[Message, ...]:
    """Make leased rows dead whose content cannot be read, which keeps them for inspection; return
    the messages of the others. An unreadable decision is only dropped: policies decide again.
    """
    messages: list[Message] = []
    dead: list[Settlement] = []
    for row in rows:
        message = as_far_as_readable(row)
        why = "; ".join(why for place, why in _faults(row) if place != _DECIDED)
        if not why:
            messages.append(message)
            continue
        log.warning(
            "message %s of route %s is dead: %s; correct its row and redrive it, or delete it",
            message.id,
            message.route,
            why,
        )
        dead.append(Settlement(message, token, State.DEAD, "dead", error=why, refund=True))
    settle(tx, dead, now)
    return tuple(messages)


def extend(tx: Tx, tokens: Sequence[int], until: int) -> None:
    tx.many("extend", [(until, token) for token in tokens])


def reap(tx: Tx, now: int, limit: int) -> list[Reaped]:
    """Lease by lease, oldest end first, until `limit` messages are back."""
    reaped: list[Reaped] = []
    changes = Changes()
    while len(reaped) < limit:
        ended = tx.one("ended_lease", (now,))
        if ended is None:
            break
        token, text = ended
        seqs = from_json_array(text)
        room = limit - len(reaped)
        for row in tx.query("lost", {"seqs": tx.array(seqs[:room]), "token": token}):
            step = lifecycle.lose(to_record(row), token, now)
            if step.answer is not None:
                changes.add(step)
                changes.settle(token)
                reaped.append(step.answer)
        if len(seqs) > room:
            tx.execute("keep_rest_of_lease", (json_array(seqs[room:]), token))
        else:
            tx.execute("drop_lease", (token,))
    changes.save(tx, now)
    return reaped


# --- settle --------------------------------------------------------------------------------


def settle(tx: Tx, settlements: Sequence[Settlement], now: int) -> list[State | None]:
    """End leases by the outcome of the send; a stale token changes nothing.

    The delivered of a lease of whom policies said the same go in one statement.
    """
    states: list[State | None] = [None] * len(settlements)
    delivered: defaultdict[tuple[int, str | None], list[int]] = defaultdict(list)
    others: list[int] = []
    for place, settlement in enumerate(settlements):
        if settlement.state is _DELIVERED:
            delivered[settlement.token, settlement.allowed].append(place)
        else:
            others.append(place)
    changes = Changes()
    if others:
        _settle_others(tx, settlements, others, now, states, changes)
    for (token, _), places in delivered.items():
        for place in _deliver(tx, settlements, places, token, now, changes):
            states[place] = _DELIVERED
    changes.save(tx, now)
    return states


def _deliver(
    tx: Tx,
    settlements: Sequence[Settlement],
    places: list[int],
    token: int,
    now: int,
    changes: Changes,
) -> list[int]:
    """`lifecycle.settle` of many delivered messages at once.

    Returns the indexes of those whose token was still valid, each message once.
    """
    seqs = [settlements[place].message.ref for place in places]
    first = settlements[places[0]]
    is_plain = first.allowed is None and first.decided is None
    decided = None if is_plain else decided_column(first.kept)
    values = {"seqs": tx.array(seqs), "token": token, "now": now, "decided": decided}
    hit = [row[0] for row in tx.query("deliver", values)]
    if not hit:
        return []
    changes.retire(hit)
    changes.settle(token, len(hit))
    if len(hit) == len(places):
        return places
    left = set(hit)
    current = []
    for place, seq in zip(places, seqs, strict=True):
        if seq in left:
            left.discard(seq)
            current.append(place)
    return current


def _settle_others(
    tx: Tx,
    settlements: Sequence[Settlement],
    places: list[int],
    now: int,
    states: list[State | None],
    changes: Changes,
) -> None:
    seqs = tx.array([settlements[place].message.ref for place in places])
    leases = {seq: (token, asked) for seq, token, asked in tx.query("leases_of", {"seqs": seqs})}
    for place in places:
        settlement = settlements[place]
        message = settlement.message  # as it was claimed: under a lease only a cancel is noted
        token, cancel_pending = leases.get(message.ref, (None, 0))
        if cancel_pending:
            message = replace(message, cancel_pending=True)
        record = Record(message, token)
        step = lifecycle.settle(record, settlement, now)
        if step.record is record or token is None:
            continue
        states[place] = step.answer
        leases[message.ref] = (None, 0)
        changes.add(step)
        changes.settle(token)


# --- amend ---------------------------------------------------------------------------------


def amend(tx: Tx, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    """Cancel, reschedule, release, redrive, delete, erase: each with a definite answer."""
    records: dict[str, Record | None] = {
        record.message.id: record
        for record in _with_last_event(tx, [amendment.id for amendment in amendments])
    }
    changes = Changes()
    answers = []
    for amendment in amendments:
        record = records.get(amendment.id)
        step = lifecycle.amend(record, amendment, now)
        answers.append(step.answer)
        if record is None or step.record is record:
            continue
        records[amendment.id] = step.record
        if step.record is None:
            changes.remove(record.message.ref)
        else:
            rewritten = amendment.action is Action.RESCHEDULE and _has_other(record, step.record)
            changes.add(step, content=rewritten)
    changes.save(tx, now)
    return answers


def _has_other(record: Record, changed: Record) -> bool:
    """Whether a step changed the content; otherwise unreadable content is not overwritten."""
    return content_values(record.message) != content_values(changed.message)


def _with_last_event(tx: Tx, ids: Sequence[str]) -> list[Record]:
    """The records of the ids; of the dead with the last line of their timeline."""
    records = [to_record(row) for row in tx.query("records", {"ids": tx.array(ids)})]
    dead = [r.message.ref for r in records if r.message.state is State.DEAD]
    if not dead:
        return records
    rows = tx.query("last_events", {"seqs": tx.array(dead)})
    last = {row[0]: (event_of(row[1:]),) for row in rows}
    return [replace(record, noted=last.get(record.message.ref, ())) for record in records]


# --- reading messages and routes -----------------------------------------------------------


def find(tx: Tx, ids: Sequence[str]) -> list[Message | None]:
    rows = tx.query("found", {"ids": tx.array(ids)})
    found = {message.id: message for message in map(as_far_as_readable, rows)}
    return [found.get(message_id) for message_id in ids]


def get(tx: Tx, message_id: str) -> tuple[Message, list[Event]] | None:
    """The message and its timeline: common events are derived from its columns, the others from
    its events.
    """
    row = tx.one("found", {"ids": tx.array([message_id])})
    if row is None:
        return None
    message = as_far_as_readable(row)
    noted = [event_of(row) for row in tx.query("events", {"seq": message.ref})]
    return message, lines_of(message, noted)


def purge(tx: Tx, now: int, limit: int, retention: int, retention_count: int) -> int:
    """Forget the oldest settled ones that are past the time, or more than the count."""
    purged = 0
    while purged < limit:
        oldest = tx.one("oldest_retired")
        if oldest is None:
            break
        number, at, count, text, total = oldest
        over = count if now - at > retention else min(count, total - retention_count)
        over = min(over, limit - purged)
        if over <= 0:
            break
        seqs = from_json_array(text)
        if over < count:
            tx.execute("keep_rest_of_retired", (count - over, json_array(seqs[over:]), number))
        else:
            tx.execute("drop_retired", (number,))
        rows = tx.query("retired_then", {"seqs": tx.array(seqs[:over]), "at": at})
        _remove(tx, [row[0] for row in rows])
        purged += over
    return purged


def erasures(tx: Tx, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
    """The ids that are to be erased once they can be, after adding and removing some."""
    for message_id in add:
        tx.execute("set_meta", (f"{_ERASE}{message_id}", ""))
    for message_id in remove:
        tx.execute("drop_meta", (f"{_ERASE}{message_id}",))
    rows = tx.query("meta_names", (_ERASE, _AFTER_ERASE))
    return [name.removeprefix(_ERASE) for (name,) in rows]


def pause(tx: Tx, route: str, paused: bool) -> None:
    """Store the pause, so that it applies to every process and after a restart."""
    if paused:
        tx.execute("pause", (route,))
        return
    tx.execute("resume", (route,))
    (next_due,) = tx.one("next_due", {"route": route})
    if next_due is not None:
        wake(tx, route, next_due)


def paused_routes(tx: Tx) -> frozenset[str]:
    return frozenset(row[0] for row in tx.query("paused"))


# --- rows: usual values are stored as NULL, which costs no space or time -------------------


@lru_cache(maxsize=4096)
def _labels_of(text: str) -> Labels:
    """Shared by all messages that have the same, which are mostly many."""
    return _labels.decode(text)


def to_message(row: Row) -> Message:
    """A row of the block `columns` → the message; Unreadable if a column of JSON is not ours."""
    # fmt: off
    (
        seq, message_id, route, key, payload, content_type, headers, labels, topic, due, expires,
        priority, state, version, attempt, attempt_floor, created, claimed, settled, last_error,
        cancel_pending, decided,
    ) = row
    # fmt: on
    return Message(  # in the order of its fields: this runs once for every message released
        message_id,
        route,
        message_id if key is None else key,
        b"" if payload is None else payload,
        due,
        JSON if content_type is None else content_type,
        None if headers is None else _headers.decode(headers),
        expires,
        priority,
        None if labels is None else _labels_of(labels),
        topic,
        STATES[state],
        version,
        attempt,
        attempt_floor,
        created,
        claimed,
        settled,
        last_error,
        cancel_pending == 1,
        None if decided is None else _decided.decode(decided),
        seq,
    )


def as_far_as_readable(row: Row) -> Message:
    """The same for callers that do not send it: unreadable columns are missing."""
    try:
        return to_message(row)
    except Unreadable:
        columns = list(row)
        for place, _ in _faults(row):
            columns[place] = None
        return to_message(columns)


def _faults(row: Row) -> Iterator[tuple[int, str]]:
    """The columns of a row that cannot be read: place and reason."""
    for place, name, decoder in _DECODED:
        try:
            if row[place] is not None:
                decoder.decode(row[place])
        except Unreadable as exc:
            yield place, f"its {name} cannot be read: {exc}"


def event_of(row: Row) -> Event:
    """A row of the statement `events` → the line of the timeline."""
    at, event, detail, attempt = row
    return Event(at=at, event=event, detail=detail, attempt=attempt)


def to_record(row: Row) -> Record:
    """A row of the block `columns` and the token of its lease → the record."""
    return Record(as_far_as_readable(row[:-1]), row[-1])


def put_rows(messages: Iterable[NewMessage], now: int) -> list[Row]:
    """The values of `put` for each message."""
    return [
        (m.id, m.route, None if m.key == m.id else m.key, m.payload, None, None, None, None, m.due,
         m.expires, m.priority, now)
        if m.headers is None and m.labels is None and m.topic is None and m.content_type == JSON
        else (
            m.id, m.route, None if m.key == m.id else m.key, m.payload,
            _content_type_column(m.content_type), _headers_column(m.headers),
            _labels_column(m.labels), m.topic, m.due, m.expires, m.priority, now,
        )
        for m in messages
    ]  # fmt: skip


def plain_values(messages: Iterable[NewMessage], now: int, *, keyed: bool) -> list[Any] | None:
    """The values of `put_plain` or `put_keyed`, row after row; None: not all are as plain as that.

    The payload goes as a bytearray: sqlite3 looks for an adapter of bytes and of None, each time.
    """
    values: list[Any] = []
    for m in messages:
        if (
            m.headers is not None
            or m.labels is not None
            or m.topic is not None
            or m.expires is not None
            or m.content_type != JSON
            or (m.key != m.id) is not keyed
        ):
            return None
        values += (m.id, m.route, bytearray(m.payload), m.due, m.priority, now)
        if keyed:
            values.append(m.key)
    return values


def progress_values(record: Record) -> dict[str, Any]:
    """The values of `write`."""
    m = record.message
    return {
        "seq": m.ref,
        "due": m.due,
        "state": NUMBERS[m.state],
        "version": m.version,
        "attempt": m.attempt,
        "attempt_floor": m.attempt_floor,
        "claimed": m.claimed,
        "settled": m.settled,
        "lease": record.token,
        "last_error": m.last_error,
        "cancel_pending": int(m.cancel_pending),
        "decided": decided_column(m.decided),
    }


def content_values(message: Message) -> dict[str, Any]:
    """The values of `write_content` besides those of `write`."""
    return {
        "route": message.route,
        "key": None if message.key == message.id else message.key,
        "payload": message.payload,
        "content_type": _content_type_column(message.content_type),
        "headers": _headers_column(message.headers),
        "labels": _labels_column(message.labels),
        "topic": message.topic,
        "expires": message.expires,
        "priority": message.priority,
    }


def _content_type_column(content_type: str) -> str | None:
    return None if content_type == JSON else content_type


def _headers_column(headers: dict[str, str] | None) -> str | None:
    return _encode(headers).decode() if headers else None


def _labels_column(labels: Labels | None) -> str | None:
    return None if labels is None else _encode(labels).decode()


def decided_column(decided: Decided | None) -> str | None:
    return None if decided is None else _encode(decided).decode()


def json_array(values: Sequence[int] | Sequence[str]) -> str:
    """A list as a column keeps it."""
    return _encode(values).decode()


def from_json_array(text: str) -> list[int]:
    return _seqs.decode(text)
