"""AMEND: cancel, reschedule, release, redrive, delete, erase — each with a definite answer."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import lifecycle
from penstock.model.errors import StoreUnavailable
from penstock.model.fit import check_whole_size, stored_size
from penstock.model.lifecycle import Step
from penstock.model.message import Message
from penstock.model.outcome import Action, Amended, Amendment, Answer
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.items import MAX_CONTENT
from penstock.stores.dynamodb.put import TRIES
from penstock.stores.dynamodb.session import Loaded, Session


async def amend(session: Session, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    """Amend messages: several changes of one message in order, different messages together."""
    answers: list[Amended | None] = [None] * len(amendments)
    indexes = list(range(len(amendments)))
    while indexes:
        firsts: dict[str, int] = {}
        for index in indexes:
            firsts.setdefault(amendments[index].id, index)
        distinct = list(firsts.values())
        for _ in range(TRIES):
            if not distinct:
                break
            distinct = await _amend_distinct(session, amendments, distinct, answers, now)
        if distinct:
            raise StoreUnavailable(
                f"gave up after {TRIES} concurrent updates of this message; retry"
            )
        done = set(firsts.values())
        indexes = [index for index in indexes if index not in done]
    return [answer for answer in answers if answer is not None]


async def _amend_distinct(
    session: Session,
    amendments: Sequence[Amendment],
    indexes: Sequence[int],
    answers: list[Amended | None],
    now: int,
) -> list[int]:
    """Read, decide, write; the answer is the indexes of the messages changed concurrently."""
    found = await session.read([amendments[index].id for index in indexes])
    steps: list[tuple[int, Loaded, Step[Amended]]] = []
    removed: list[tuple[int, Loaded]] = []
    for index in indexes:
        loaded = found.get(amendments[index].id)
        record = None if loaded is None else loaded.record
        step = lifecycle.amend(record, amendments[index], now)
        if loaded is None or step.record is record:
            answers[index] = step.answer
        elif step.record is None:
            removed.append((index, loaded))
        else:
            if amendments[index].action is Action.RESCHEDULE:
                check_whole_size(stored_size(step.record.message), MAX_CONTENT)
            steps.append((index, loaded, step))
    made = await session.write([(loaded, step) for _, loaded, step in steps], now)
    again = await _remove(session, removed, answers)
    changed: list[tuple[Message, Message]] = []
    for (index, loaded, step), after in zip(steps, made, strict=True):
        if after is not None:
            answers[index] = Amended(step.answer.answer, after)
            changed.append((loaded.message, after))
        else:
            again.append(index)
    await _follow(session, changed, now)
    return again


async def _remove(
    session: Session, removed: Sequence[tuple[int, Loaded]], answers: list[Amended | None]
) -> list[int]:
    """Remove these items; the answer is the indexes of the messages changed concurrently."""
    gone = await session.remove([loaded for _, loaded in removed])
    for (index, loaded), is_gone in zip(removed, gone, strict=True):
        if is_gone:
            answers[index] = Amended(Answer.DONE, loaded.message)
    waited = [
        loaded.message
        for (_, loaded), is_gone in zip(removed, gone, strict=True)
        if is_gone and loaded.message.state is State.SCHEDULED
    ]
    if waited:
        await session.drop(waited)
    return [index for (index, _), is_gone in zip(removed, gone, strict=True) if not is_gone]


async def _follow(session: Session, changed: Sequence[tuple[Message, Message]], now: int) -> None:
    """Update the near future's ids after the table was written."""
    moved = [
        was
        for was, then in changed
        if was.state is State.SCHEDULED
        and (
            then.state is not State.SCHEDULED
            or was.priority != then.priority
            or (was.due != then.due and was.route in session.keyed)
        )
    ]
    if moved:
        await session.drop(moved)
    waiting = [then for _, then in changed if then.state is State.SCHEDULED]
    if waiting:
        await session.bring(waiting, now, exact=True)
    await session.retire([then.id for _, then in changed if then.state in PURGEABLE], now)
