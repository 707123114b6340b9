"""AMEND: cancel, reschedule, release, redrive, delete, erase — each with a definite answer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.lifecycle import Record
from penstock.model.outcome import Action, Amended, Amendment
from penstock.model.state import PURGEABLE, State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import to_record
from penstock.stores.sqlite.session import Session


def amend(session: Session, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    cancelled: list[int] = []
    answers = [_amend_one(session, amendment, now, cancelled) for amendment in amendments]
    session.retire(cancelled, now)
    return answers


def _amend_one(session: Session, amendment: Amendment, now: int, cancelled: list[int]) -> Amended:
    record = _find(session, amendment.id)
    step = lifecycle.amend(record, amendment, now)
    if record is None or step.record is record:
        return step.answer
    if step.record is None:
        session.remove([record.message.ref])
        return step.answer
    session.write(step, content=amendment.action is Action.RESCHEDULE)
    if step.record.message.state in PURGEABLE:
        cancelled.append(record.message.ref)
    return step.answer


def _find(session: Session, message_id: str) -> Record | None:
    row = session.execute(statements.BY_ID, (message_id,)).fetchone()
    if row is None:
        return None
    record = to_record(row)
    if record.message.state is not State.DEAD:
        return record
    return replace(record, noted=session.last_event(record.message.ref))
