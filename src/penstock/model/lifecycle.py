"""The life of a message as pure steps: (record, request, now) → (answer, record, events).

    put     keep a new id, or let `on_conflict` decide about a known one
    lease   give a due message to a worker, under a token
    settle  end a lease by the outcome of the send; a stale token changes nothing
    lose    end a lease whose time ran out
    amend   cancel, reschedule, release, redrive, delete, erase

A store loads the record, takes the step and writes the result, on the condition that the record
has not changed meanwhile. `TRANSITIONS` in `penstock.model.state` says which state may follow
which. The timeline notes only what the fields of the message do not tell: `penstock.model.timeline`
puts both together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from penstock.model.message import Event, Message, NewMessage, OnConflict
from penstock.model.outcome import (
    Action,
    Amended,
    Amendment,
    Answer,
    Reaped,
    Receipt,
    Settlement,
)
from penstock.model.state import DELETABLE, ERASABLE, State, after_lease, may_become
from penstock.model.timeline import release_is_noted
from penstock.model.times import format_moment
from penstock.model.verdict import Decided

A = TypeVar("A")

_ONLY_OF_A_PUT = set(NewMessage.__struct_fields__) - set(Message.__struct_fields__)
_SCHEDULED_ONLY = frozenset({State.SCHEDULED})
ALLOWED: dict[Action, frozenset[State]] = {
    Action.CANCEL: _SCHEDULED_ONLY,
    Action.RESCHEDULE: _SCHEDULED_ONLY,
    Action.RELEASE: _SCHEDULED_ONLY,
    Action.REDRIVE: frozenset({State.DEAD}),
    Action.DELETE: DELETABLE,
    Action.ERASE: ERASABLE,
}
"""The states in which each amendment is allowed."""
_REMOVING = frozenset({Action.DELETE, Action.ERASE})
_STOPPING = frozenset({Action.CANCEL, Action.ERASE})


class Record(msgspec.Struct, frozen=True):
    """A message with its lease and the timeline stored beside it."""

    message: Message
    token: int | None = None
    """The fencing token of the lease under way."""
    noted: tuple[Event, ...] = ()
    """Lines noted in the timeline so far. Steps read only the last line, and only of a dead
    message, so a store need not load more."""


class Step(NamedTuple, Generic[A]):
    """The result of a step."""

    answer: A
    record: Record | None
    """The record to write: the given one if nothing changes, None if it is removed."""
    events: tuple[Event, ...] = ()
    """Lines to add to the timeline."""


def put(record: Record | None, new: NewMessage, now: int) -> Step[Receipt]:
    """Keep a message whose id is new; replace a known one if `on_conflict` says so."""
    if record is None:
        message = accepted(new, now)
        return Step(Receipt(new.id, message.state, new.due), Record(message))
    held = record.message
    if not _replaces(new, held):
        return Step(Receipt(new.id, held.state, held.due, duplicate=True), record)
    message = replace(
        held,
        **_content(new),
        version=held.version + 1,
        decided=_refusal_kept(held, new),
    )
    receipt = Receipt(new.id, message.state, message.due, duplicate=True)
    return Step(receipt, replace(record, message=message), (_line(now, "replaced"),))


def accepted(new: NewMessage, now: int) -> Message:
    """The message that a put with a new id makes, settled at once if the put carries an ending."""
    state, error = new.ending or (State.SCHEDULED, None)
    return Message(
        **_content(new),
        state=state,
        created=now,
        settled=None if state is State.SCHEDULED else now,
        last_error=error,
    )


def _content(new: NewMessage) -> dict[str, Any]:
    """The fields that a put sets on a message."""
    fields = asdict(new)
    for name in _ONLY_OF_A_PUT:
        del fields[name]
    fields["headers"] = new.headers or None
    return fields


def _replaces(new: NewMessage, held: Message) -> bool:
    """Whether `on_conflict` replaces a message that is still scheduled."""
    if held.state is not State.SCHEDULED:
        return False
    return new.on_conflict is OnConflict.REPLACE or (
        new.on_conflict is OnConflict.EARLIEST and new.due < held.due
    )


def _refusal_kept(held: Message, new: NewMessage) -> Decided | None:
    """The policies' last refusal, unless the replacing message has another route or key.

    The refusal was about the former route and key, and an ordered route would take the new message
    for one that it held back before.
    """
    return held.decided if (new.route, new.key) == (held.route, held.key) else None


def lease(record: Record, token: int, now: int) -> Step[Message | None]:
    """Lease the message to a worker; None if it is not due or not scheduled."""
    held = record.message
    if held.state is not State.SCHEDULED or held.due > now:
        return Step(None, record)
    message = _become(held, State.LEASED, attempt=held.attempt + 1, claimed=now)
    return Step(message, Record(message, token, record.noted))


def has_begun(message: Message) -> bool:
    """Whether it was sent or held back before; an ordered route sends it first of its key."""
    return message.attempt > message.attempt_floor or message.decided is not None


def holds(record: Record, token: int) -> bool:
    """Whether the lease under way has this token."""
    return record.token == token


def settle(record: Record, settlement: Settlement, now: int) -> Step[State | None]:
    """End the lease by the outcome of the send; None if the token is stale: nothing changes.

    A message whose cancel is pending is cancelled instead of scheduled again.
    """
    if not holds(record, settlement.token):
        return Step(None, record)
    held = record.message
    asked = held.cancel_pending
    state = after_lease(settlement.state, cancel_asked=asked)
    sent = not settlement.refund
    goes_on = settlement.state is State.SCHEDULED
    events: tuple[Event, ...] = ()
    # The message's own fields describe the release until it is scheduled again, and `decided` of
    # a delivered one why policies allowed it. A pending cancel has already noted the release.
    explained = settlement.allowed is not None and settlement.state is not State.DELIVERED
    if sent and not asked and (goes_on or explained):
        events += (_released(held, now, settlement.allowed),)
    if settlement.event != settlement.state:
        attempt = held.attempt if sent else None
        events += (_line(now, settlement.event, settlement.detail, attempt),)
    kept = settlement.kept
    message = _ended(
        held,
        state,
        now,
        due=held.due if settlement.due is None or state is not State.SCHEDULED else settlement.due,
        attempt=held.attempt if sent else held.attempt - 1,
        claimed=held.claimed if sent and not goes_on else None,
        last_error=held.last_error if settlement.error is None else settlement.error,
        decided=held.decided if kept is None else kept,
    )
    if state is State.DELIVERED:
        message = replace(message, payload=b"", headers=None)
    return Step(state, Record(message, None, record.noted), events)


def lose(record: Record, token: int, now: int) -> Step[Reaped | None]:
    """End a lease whose time ran out; None if another lease, or none, is under way."""
    if not holds(record, token):
        return Step(None, record)
    held = record.message
    state = after_lease(State.SCHEDULED, cancel_asked=held.cancel_pending)
    events: tuple[Event, ...] = () if held.cancel_pending else (_released(held, now),)
    events += (_line(now, "lease_lost", None, held.attempt),)
    message = _ended(held, state, now, claimed=None)
    reaped = Reaped(held.id, held.route, state, held.attempt)
    return Step(reaped, Record(message, None, record.noted), events)


def _ended(held: Message, state: State, now: int, **fields: Any) -> Message:
    settled = None if state is State.SCHEDULED else now
    return _become(held, state, settled=settled, cancel_pending=False, **fields)


def amend(record: Record | None, amendment: Amendment, now: int) -> Step[Amended]:
    """Apply a caller's change, with a definite answer.

    Unknown → already done → not in a state that allows it (RELEASED; a leased message is marked to
    be cancelled) → another version (CONFLICT) → done, version + 1.
    """
    if record is None:
        return Step(Amended(Answer.UNKNOWN), None)
    held, action = record.message, amendment.action
    if action is Action.CANCEL and held.state is State.CANCELLED:
        return Step(Amended(Answer.DONE, held), record)
    refusal = _refusal(amendment, held)
    if refusal is not None:
        marks = action in _STOPPING and held.state is State.LEASED and not held.cancel_pending
        return _mark(record, now) if marks else Step(Amended(refusal, held), record)
    if action in _REMOVING:
        return Step(Amended(Answer.DONE, held), None)
    changed, events = _CHANGES[action](record, amendment, now)
    message = replace(changed, version=held.version + 1)
    return Step(Amended(Answer.DONE, message), replace(record, message=message), events)


def _refusal(amendment: Amendment, held: Message) -> Answer | None:
    if held.state not in ALLOWED[amendment.action]:
        return Answer.RELEASED
    is_other = amendment.version is not None and amendment.version != held.version
    return Answer.CONFLICT if is_other else None


def _mark(record: Record, now: int) -> Step[Amended]:
    """Mark a pending cancel: the message is not scheduled again when its lease ends."""
    message = replace(record.message, cancel_pending=True)
    events = (_released(message, now), _line(now, "cancel_asked"))
    return Step(Amended(Answer.RELEASED, message), replace(record, message=message), events)


_Changed: TypeAlias = tuple[Message, tuple[Event, ...]]


def _cancel(record: Record, _: Amendment, now: int) -> _Changed:
    return _become(record.message, State.CANCELLED, settled=now, claimed=None), ()


def _release(record: Record, _: Amendment, now: int) -> _Changed:
    due = min(record.message.due, now)
    return replace(record.message, due=due), (_line(now, "rescheduled", "due now"),)


def _reschedule(record: Record, amendment: Amendment, now: int) -> _Changed:
    held = record.message
    due = held.due if amendment.due is None else amendment.due
    message = replace(
        held,
        due=due,
        payload=held.payload if amendment.payload is None else amendment.payload,
        content_type=amendment.content_type or held.content_type,
        headers=held.headers if amendment.headers is None else amendment.headers or None,
        labels=held.labels if amendment.labels is None else amendment.labels,
        expires=amendment.expires_then(held),
        priority=held.priority if amendment.priority is None else amendment.priority,
    )
    moved = None if due == held.due else f"due {format_moment(due)}"
    return message, (_line(now, "rescheduled", moved),)


def _redrive(record: Record, amendment: Amendment, now: int) -> _Changed:
    """Start again; the last attempt's facts are noted before their fields are reset."""
    held = record.message
    events: tuple[Event, ...] = ()
    if held.claimed is not None and not release_is_noted(held, record.noted):
        events += (_released(held, now),)
    events += (_line(held.settled or now, "dead", held.last_error, held.attempt),)
    message = _become(
        held,
        State.SCHEDULED,
        due=now if amendment.due is None else amendment.due,
        attempt_floor=held.attempt,
        claimed=None,
        settled=None,
        decided=None,
    )
    return message, (*events, _line(now, "redriven"))


_CHANGES: dict[Action, Callable[[Record, Amendment, int], _Changed]] = {
    Action.CANCEL: _cancel,
    Action.RELEASE: _release,
    Action.RESCHEDULE: _reschedule,
    Action.REDRIVE: _redrive,
}


def _become(held: Message, state: State, **fields: Any) -> Message:
    if not may_become(held.state, state):
        raise ValueError(f"{held.id}: {held.state} may not become {state}")
    return replace(held, state=state, **fields)


def _released(held: Message, now: int, why: str | None = None) -> Event:
    """The timeline line of the lease under way, from the message's own fields."""
    return _line(held.claimed or now, "released", why, held.attempt)


def _line(at: int, event: str, detail: str | None = None, attempt: int | None = None) -> Event:
    return Event(at=at, event=event, detail=detail, attempt=attempt)
