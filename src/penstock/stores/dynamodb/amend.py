"""AMEND: cancel, reschedule, release, redrive — each with a definite answer."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Amended, Amendment, Answer
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.changes import amended
from penstock.stores.dynamodb.items import Record
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
    steps: list[tuple[int, Answer, Held, Record]] = []
    for place in places:
        held = found.get(amendments[place].id)
        if held is None:
            answers[place] = Amended(Answer.UNKNOWN)
            continue
        answer, after = amended(held.record, amendments[place], now, session.retention)
        if after is None:
            answers[place] = Amended(answer, held.message)
        else:
            steps.append((place, answer, held, after))
    made = await session.write([(held, after) for _, _, held, after in steps], now)
    again: list[int] = []
    changed: list[tuple[Message, Message]] = []
    for (place, answer, held, after), done in zip(steps, made, strict=True):
        if done:
            answers[place] = Amended(answer, after.message)
            changed.append((held.message, after.message))
        else:
            again.append(place)
    await _follow(session, changed, now)
    return again


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
