"""AMEND: cancel, reschedule, release, redrive, delete, erase — each with a definite answer."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import lifecycle
from penstock.model.errors import StoreUnavailable
from penstock.model.lifecycle import Record
from penstock.model.outcome import Amended, Amendment, Answer
from penstock.model.state import State
from penstock.stores.redis.messages.records import (
    Held,
    add_events,
    pack_event,
    pack_id,
    read,
    read_events,
    unpack,
)
from penstock.stores.redis.messages.swap import Swap, swap
from penstock.stores.redis.session import Session

ROUNDS = 50
"""Times an amendment looks again, each because somebody else changed the message meanwhile."""


async def amend(session: Session, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    """An answer each, in order; an id again in one batch comes after the first."""
    answers: dict[int, Amended] = {}
    left = list(range(len(amendments)))
    for _ in range(ROUNDS + len(amendments)):
        if not left:
            return [answers[i] for i in range(len(amendments))]
        seen: set[str] = set()
        turn: list[int] = []
        later: list[int] = []
        for i in left:
            (later if amendments[i].id in seen else turn).append(i)
            seen.add(amendments[i].id)
        lost = await _round(session, amendments, turn, now, answers)
        left = sorted([*lost, *later])
    raise StoreUnavailable(f"gave up after {ROUNDS} concurrent updates; retry", retry_after=1.0)


async def _round(
    session: Session,
    amendments: Sequence[Amendment],
    turn: list[int],
    now: int,
    answers: dict[int, Amended],
) -> list[int]:
    """Answer those that can be; returns those whose message changed meanwhile."""
    found = await session.find([amendments[i].id for i in turn])
    swaps: dict[int, Swap] = {}
    for i, held in zip(turn, found, strict=True):
        answer = _step(amendments[i], held, now)
        if isinstance(answer, Swap):
            swaps[i] = answer
        else:
            answers[i] = answer
    done = await swap(session, list(swaps.values()), now)
    lost = []
    for (i, one), was_done in zip(swaps.items(), done, strict=True):
        if not was_done:
            lost.append(i)
        elif one.after is None:
            answers[i] = Amended(Answer.DONE, one.before)
        elif one.after.state is State.LEASED:
            answers[i] = Amended(Answer.RELEASED, one.after)
        else:
            answers[i] = Amended(Answer.DONE, one.after)
    return lost


def _step(amendment: Amendment, held: Held | None, now: int) -> Amended | Swap:
    """What can be said at once, or the change to be made."""
    if held is None:
        return lifecycle.amend(None, amendment, now).answer
    member = pack_id(amendment.id)
    message, events = read(member, held)
    record = Record(message, noted=tuple(read_events(events)))
    answer, after, noted = lifecycle.amend(record, amendment, now)
    if after is record:
        return answer
    # The record of a leased message tells of the time before the claim, and stays as it is.
    before = message if held.lease is None else unpack(member, held._replace(lease=None))
    if after is None:
        return Swap(member, held, before, None)
    lines = [pack_event(e.at, e.event, e.detail, e.attempt) for e in noted]
    return Swap(member, held, before, after.message, add_events(events, *lines))
