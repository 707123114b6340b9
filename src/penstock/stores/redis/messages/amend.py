"""AMEND: cancel, reschedule, release, redrive, delete, erase — each with a definite answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.model.amending import Change, judge
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Action, Amended, Amendment, Answer
from penstock.model.state import State
from penstock.model.timeline import release_is_noted
from penstock.model.times import format_moment
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
        answer = _answer(amendments[i], held, now)
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


def _answer(amendment: Amendment, held: Held | None, now: int) -> Amended | Swap:
    """What can be said at once, or the change to be made."""
    if held is None:
        return Amended(Answer.UNKNOWN)
    member = pack_id(amendment.id)
    message = unpack(member, held)
    answer, change = judge(amendment, message)
    if change is None:
        return Amended(answer, message)
    if change is Change.MARK:
        return _ask_cancel(member, held, message, now)
    if change is Change.REMOVE:
        return Swap(member, held, message, None)
    _, events = read(member, held)
    after, noted = _change(message, amendment, now, events)
    return Swap(member, held, message, after, add_events(events, *noted))


def _ask_cancel(member: bytes, held: Held, message: Message, now: int) -> Swap:
    before, events = read(member, held._replace(lease=None))
    noted = add_events(
        events,
        pack_event(message.claimed or now, "released", attempt=message.attempt),
        pack_event(now, "cancel_asked"),
    )
    after = msgspec.structs.replace(message, cancel_pending=True)
    return Swap(member, held, before, after, noted)


def _change(
    message: Message, amendment: Amendment, now: int, events: bytes
) -> tuple[Message, list[bytes]]:
    """The message after, and the lines to be added to its `events`."""
    version = message.version + 1
    if amendment.action is Action.CANCEL:
        after = msgspec.structs.replace(
            message, state=State.CANCELLED, settled=now, claimed=None, version=version
        )
        return after, []
    if amendment.action is Action.RELEASE:
        after = msgspec.structs.replace(message, due=min(message.due, now), version=version)
        return after, [pack_event(now, "rescheduled", "due now")]
    if amendment.action is Action.REDRIVE:
        return _redrive(message, amendment, now, events)
    changes = {
        name: value
        for name in ("due", "payload", "content_type", "headers", "priority", "labels")
        if (value := getattr(amendment, name)) is not None
    }
    expires = amendment.expires_then(message)
    after = msgspec.structs.replace(message, **changes, expires=expires, version=version)
    moved = None if after.due == message.due else f"due {format_moment(after.due)}"
    return after, [pack_event(now, "rescheduled", moved)]


def _redrive(
    message: Message, amendment: Amendment, now: int, events: bytes
) -> tuple[Message, list[bytes]]:
    noted = []
    if message.claimed is not None and not release_is_noted(message, read_events(events)):
        noted.append(pack_event(message.claimed, "released", attempt=message.attempt))
    dead = pack_event(message.settled or now, "dead", message.last_error, message.attempt)
    after = msgspec.structs.replace(
        message,
        state=State.SCHEDULED,
        due=now if amendment.due is None else amendment.due,
        attempt_floor=message.attempt,
        claimed=None,
        settled=None,
        decided=None,
        version=message.version + 1,
    )
    return after, [*noted, dead, pack_event(now, "redriven")]
