"""What becomes of a message: pure steps from one record to the next, a revision each."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.model.amending import refusal_kept
from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.state import PURGEABLE, State, after_lease
from penstock.model.timeline import release_is_noted
from penstock.model.times import format_moment
from penstock.stores.dynamodb.items import (
    MAX_DETAIL,
    MAX_EVENTS,
    MAX_LINES,
    Line,
    Record,
    expiry,
    noted_in,
)


def _next(record: Record, lines: tuple[Line, ...] = (), **fields: Any) -> Record:
    """The record a revision later, with these fields of the message changed."""
    message = replace(record.message, ref=record.message.ref + 1, **fields)
    return replace(record, message=message, lines=_bounded(record.lines + lines))


def _bounded(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The last of them, in number and in bytes: an item must not outgrow DynamoDB by retries."""
    kept: list[Line] = []
    size = 0
    for line in reversed(lines[-MAX_EVENTS:]):
        detail = None if line.detail is None else line.detail[:MAX_DETAIL]
        size += 32 + len((detail or "").encode())
        if size > MAX_LINES:
            break
        kept.append(replace(line, detail=detail))
    return tuple(reversed(kept))


def wins(new: NewMessage, held: Message) -> bool:
    """Whether a put with a known id takes the place of the message held."""
    if held.state is not State.SCHEDULED:
        return False
    return new.on_conflict is OnConflict.REPLACE or (
        new.on_conflict is OnConflict.EARLIEST and new.due < held.due
    )


def replaced(record: Record, new: NewMessage, now: int) -> Record:
    return _next(
        record,
        (Line(now, "replaced"),),
        route=new.route,
        key=new.key,
        payload=new.payload,
        content_type=new.content_type,
        headers=new.headers or None,
        labels=new.labels,
        topic=new.topic,
        due=new.due,
        expires=new.expires,
        priority=new.priority,
        version=record.message.version + 1,
        decided=refusal_kept(record.message, new),
    )


def leased(record: Record, token: int, now: int) -> Record:
    after = _next(record, state=State.LEASED, attempt=record.message.attempt + 1, claimed=now)
    return replace(after, token=token)


def settled(record: Record, settlement: Settlement, now: int, retention: int) -> Record:
    """The end of a lease by what came of the send."""
    m = record.message
    state = after_lease(settlement.state, cancel_asked=m.cancel_pending)
    sent = not settlement.refund
    goes_on = settlement.state is State.SCHEDULED
    lines: tuple[Line, ...] = ()
    told = settlement.allowed is not None and settlement.kept is None
    if (goes_on or told) and sent and not m.cancel_pending:
        lines += (Line(m.claimed or now, "released", settlement.allowed, m.attempt),)
    if settlement.event != settlement.state:
        lines += (Line(now, settlement.event, settlement.detail, m.attempt if sent else None),)
    moved = settlement.due is not None and state is State.SCHEDULED
    after = _ended(
        record,
        lines,
        state,
        now,
        retention,
        due=settlement.due if moved else m.due,
        attempt=m.attempt if sent else m.attempt - 1,
        claimed=m.claimed if sent and not goes_on else None,
        last_error=m.last_error if settlement.error is None else settlement.error,
        decided=m.decided if settlement.kept is None else settlement.kept,
    )
    if state is State.DELIVERED:
        return replace(after, message=replace(after.message, payload=b"", headers=None))
    return after


def lost(record: Record, now: int, retention: int) -> Record:
    """The lease ran out."""
    m = record.message
    state = after_lease(State.SCHEDULED, cancel_asked=m.cancel_pending)
    lines: tuple[Line, ...] = (Line(now, "lease_lost", None, m.attempt),)
    if not m.cancel_pending:
        lines = (Line(m.claimed or now, "released", None, m.attempt), *lines)
    return _ended(record, lines, state, now, retention, claimed=None)


def _ended(
    record: Record, lines: tuple[Line, ...], state: State, now: int, retention: int, **fields: Any
) -> Record:
    ended = None if state is State.SCHEDULED else now
    after = _next(record, lines, state=state, settled=ended, cancel_pending=False, **fields)
    return replace(after, token=None, ttl=_ttl(state, now, retention))


def _ttl(state: State, now: int, retention: int) -> int | None:
    return expiry(now, retention) if state in PURGEABLE else None


def cancel_asked(record: Record, now: int) -> Record:
    m = record.message
    released = Line(m.claimed or now, "released", None, m.attempt)
    return _next(record, (released, Line(now, "cancel_asked")), cancel_pending=True)


def amended(record: Record, amendment: Amendment, now: int, retention: int) -> Record:
    """What `judge` lets it become."""
    held, version = record.message, record.message.version + 1
    if amendment.action is Action.CANCEL:
        after = _next(record, state=State.CANCELLED, settled=now, claimed=None, version=version)
        return replace(after, ttl=_ttl(State.CANCELLED, now, retention), token=None)
    if amendment.action is Action.RELEASE:
        line = Line(now, "rescheduled", "due now")
        return _next(record, (line,), due=min(held.due, now), version=version)
    if amendment.action is Action.RESCHEDULE:
        return _rescheduled(record, amendment, now)
    return _redriven(record, amendment, now)


def _rescheduled(record: Record, amendment: Amendment, now: int) -> Record:
    held = record.message
    due = held.due if amendment.due is None else amendment.due
    moved = None if due == held.due else f"due {format_moment(due)}"
    return _next(
        record,
        (Line(now, "rescheduled", moved),),
        due=due,
        payload=held.payload if amendment.payload is None else amendment.payload,
        content_type=amendment.content_type or held.content_type,
        headers=held.headers if amendment.headers is None else amendment.headers or None,
        labels=held.labels if amendment.labels is None else amendment.labels,
        expires=amendment.expires_then(held),
        priority=held.priority if amendment.priority is None else amendment.priority,
        version=held.version + 1,
    )


def _redriven(record: Record, amendment: Amendment, now: int) -> Record:
    held = record.message
    lines: tuple[Line, ...] = ()
    if held.claimed is not None and not release_is_noted(held, noted_in(record)):
        lines += (Line(held.claimed, "released", None, held.attempt),)
    lines += (Line(held.settled or now, "dead", held.last_error, held.attempt),)
    return _next(
        record,
        (*lines, Line(now, "redriven")),
        state=State.SCHEDULED,
        due=now if amendment.due is None else amendment.due,
        attempt_floor=held.attempt,
        claimed=None,
        settled=None,
        decided=None,
        version=held.version + 1,
    )
