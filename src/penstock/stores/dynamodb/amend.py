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
from penstock.stores.dynamodb.session import Held, Session


async def amend(session: Session, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    """Those of one message one after the other, those of different messages together."""
    answers: list[Amended | None] = [None] * len(amendments)
    places = list(range(len(amendments)))
    while places:
        firsts: dict[str, int] = {}
        for place in places:
            firsts.setdefault(amendments[place].id, place)
        distinct = list(firsts.values())
        for _ in range(TRIES):
            if not distinct:
                break
            distinct = await _amend_distinct(session, amendments, distinct, answers, now)
        if distinct:
            raise StoreUnavailable("a message is changed by others again and again: try again")
        done = set(firsts.values())
        places = [place for place in places if place not in done]
    return [answer for answer in answers if answer is not None]


async def _amend_distinct(
    session: Session,
    amendments: Sequence[Amendment],
    places: Sequence[int],
    answers: list[Amended | None],
    now: int,
) -> list[int]:
    """Read, decide, write; returns the places of those that somebody changed in between."""
    found = await session.read([amendments[place].id for place in places])
    steps: list[tuple[int, Held, Step[Amended]]] = []
    removed: list[tuple[int, Held]] = []
    for place in places:
        held = found.get(amendments[place].id)
        record = None if held is None else held.record
        step = lifecycle.amend(record, amendments[place], now)
        if held is None or step.record is record:
            answers[place] = step.answer
        elif step.record is None:
            removed.append((place, held))
        else:
            if amendments[place].action is Action.RESCHEDULE:
                check_whole_size(stored_size(step.record.message), MAX_CONTENT)
            steps.append((place, held, step))
    made = await session.write([(held, step) for _, held, step in steps], now)
    again = await _remove(session, removed, answers)
    changed: list[tuple[Message, Message]] = []
    for (place, held, step), after in zip(steps, made, strict=True):
        if after is not None:
            answers[place] = Amended(step.answer.answer, after)
            changed.append((held.message, after))
        else:
            again.append(place)
    await _follow(session, changed, now)
    return again


async def _remove(
    session: Session, removed: Sequence[tuple[int, Held]], answers: list[Amended | None]
) -> list[int]:
    """Keep nothing of these; returns the places of those that somebody changed in between."""
    gone = await session.remove([held for _, held in removed])
    for (place, held), is_gone in zip(removed, gone, strict=True):
        if is_gone:
            answers[place] = Amended(Answer.DONE, held.message)
    waited = [
        held.message
        for (_, held), is_gone in zip(removed, gone, strict=True)
        if is_gone and held.message.state is State.SCHEDULED
    ]
    if waited:
        await session.drop(waited)
    return [place for (place, _), is_gone in zip(removed, gone, strict=True) if not is_gone]


async def _follow(session: Session, changed: Sequence[tuple[Message, Message]], now: int) -> None:
    """The near future goes along with the truth."""
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
