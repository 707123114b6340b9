"""AMEND: cancel, reschedule, release, redrive, delete, erase — each with a definite answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.model.amending import Change, judge
from penstock.model.message import Message
from penstock.model.outcome import Action, Amended, Amendment, Answer
from penstock.model.state import State
from penstock.model.timeline import release_is_noted
from penstock.model.times import format_moment
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import (
    content_type_column,
    headers_column,
    labels_column,
    to_message,
)
from penstock.stores.sqlite.session import Session


def amend(session: Session, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    cancelled: list[int] = []
    answers = [_amend_one(session, amendment, now, cancelled) for amendment in amendments]
    session.retire(cancelled, now)
    return answers


def _amend_one(session: Session, amendment: Amendment, now: int, cancelled: list[int]) -> Amended:
    held = _find(session, amendment.id)
    if held is None:
        return Amended(Answer.UNKNOWN)
    answer, change = judge(amendment, held)
    if change is None:
        return Amended(answer, held)
    if change is Change.MARK:
        return Amended(answer, _ask_cancel(session, held, now))
    if change is Change.REMOVE:
        session.remove([held.ref])
        return Amended(answer, held)
    _DO[amendment.action](session, held, amendment, now)
    if amendment.action is Action.CANCEL:
        cancelled.append(held.ref)
    changed = _find(session, amendment.id)
    if changed is not None and changed.state is State.SCHEDULED:
        session.wake(changed.route, changed.due)
    return Amended(answer, changed)


def _find(session: Session, message_id: str) -> Message | None:
    row = session.execute(statements.BY_ID, (message_id,)).fetchone()
    return None if row is None else to_message(row)


def _ask_cancel(session: Session, held: Message, now: int) -> Message | None:
    session.execute(statements.ASK_CANCEL, (held.ref,))
    session.note(held.ref, held.claimed or now, "released", attempt=held.attempt)
    session.note(held.ref, now, "cancel_asked")
    return _find(session, held.id)


def _cancel(session: Session, held: Message, _: Amendment, now: int) -> None:
    session.execute(statements.CANCEL, (now, held.ref))


def _reschedule(session: Session, held: Message, amendment: Amendment, now: int) -> None:
    due = held.due if amendment.due is None else amendment.due
    content_type = amendment.content_type or held.content_type
    headers = held.headers if amendment.headers is None else amendment.headers
    labels = held.labels if amendment.labels is None else amendment.labels
    values = (
        due,
        held.payload if amendment.payload is None else amendment.payload,
        content_type_column(content_type),
        headers_column(headers),
        labels_column(labels),
        amendment.expires_then(held),
        held.priority if amendment.priority is None else amendment.priority,
        held.ref,
    )
    session.execute(statements.RESCHEDULE, values)
    moved = None if due == held.due else f"due {format_moment(due)}"
    session.note(held.ref, now, "rescheduled", moved)


def _release(session: Session, held: Message, _: Amendment, now: int) -> None:
    session.execute(statements.RELEASE, (now, held.ref))
    session.note(held.ref, now, "rescheduled", "due now")


def _redrive(session: Session, held: Message, amendment: Amendment, now: int) -> None:
    if held.claimed is not None and not release_is_noted(held, session.last_event(held.ref)):
        session.note(held.ref, held.claimed, "released", attempt=held.attempt)
    session.note(held.ref, held.settled or now, "dead", held.last_error, held.attempt)
    session.execute(statements.REDRIVE, (now if amendment.due is None else amendment.due, held.ref))
    session.note(held.ref, now, "redriven")


_DO: dict[Action, Callable[[Session, Message, Amendment, int], None]] = {
    Action.CANCEL: _cancel,
    Action.RESCHEDULE: _reschedule,
    Action.RELEASE: _release,
    Action.REDRIVE: _redrive,
}
