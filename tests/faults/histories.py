"""Whether calls that ran beside each other can be put into one order that explains every answer.

A search as Wing and Gong describe it, for one message at a time: what is true of each message by
itself is true of all of them together. The sequential rules are the steps of a message's life.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.model import lifecycle
from penstock.model.lifecycle import Record
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import (
    Amended,
    Amendment,
    Answer,
    Reaped,
    Receipt,
    Settlement,
)
from penstock.model.state import State

NEAR_MS = 60_000
"""What is due within this time is due: clocks may differ by a little, and tests use hours."""


class Call(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What one caller asked for and was answered, on the machine's monotonic clock."""

    caller: str
    start: int
    end: int
    now: int
    """The moment it gave the store."""


class Put(Call, frozen=True, tag=True):
    new: NewMessage
    receipt: Receipt


class Took(Call, frozen=True, tag=True):
    """One message of a claim."""

    message: Message
    token: int
    until: int


class Settled(Call, frozen=True, tag=True):
    settlement: Settlement
    state: State | None


class Amends(Call, frozen=True, tag=True):
    amendment: Amendment
    amended: Amended


class Found(Call, frozen=True, tag=True):
    id: str
    message: Message | None


class Lost(Call, frozen=True, tag=True):
    """One message whose lease was found to have run out."""

    reaped: Reaped


Step: TypeAlias = Put | Took | Settled | Amends | Found | Lost


def id_of(step: Step) -> str:
    match step:
        case Put():
            return step.new.id
        case Took():
            return step.message.id
        case Settled():
            return step.settlement.message.id
        case Amends():
            return step.amendment.id
        case Found():
            return step.id
        case Lost():
            return step.reaped.id


class Life(NamedTuple):
    """One message as the steps so far leave it."""

    record: Record | None = None
    until: int = 0
    """When its lease ends."""


def after(life: Life, step: Step) -> Life | None:
    """The message after the step; None: the rules give another answer than the step got."""
    record = life.record
    if isinstance(step, Put):
        put = lifecycle.put(record, step.new, step.now)
        return life._replace(record=put.record) if put.answer == step.receipt else None
    if isinstance(step, Amends):
        wanted, record, _ = lifecycle.amend(record, step.amendment, step.now)
        got = step.amended
        is_same = wanted.answer is got.answer
        if wanted.answer is Answer.DONE:
            is_same = is_same and _agree(wanted.message, got.message)
        return life._replace(record=record) if is_same else None
    if isinstance(step, Found):
        held = None if record is None else record.message
        return life if _agree(held, step.message) else None
    if isinstance(step, Settled):
        if record is None:
            return life if step.state is None else None
        settled = lifecycle.settle(record, step.settlement, step.now)
        return life._replace(record=settled.record) if settled.answer is step.state else None
    if record is None:
        return None
    if isinstance(step, Took):
        leased = lifecycle.lease(record, step.token, step.now + NEAR_MS)
        is_same = leased.answer is not None and _agree(leased.answer, step.message)
        is_same = is_same and step.message.route == record.message.route
        return Life(leased.record, step.until) if is_same else None
    if record.token is None or life.until > step.now + NEAR_MS:
        return None
    lost = lifecycle.lose(record, record.token, step.now)
    is_same = lost.answer is not None and lost.answer.state is step.reaped.state
    return life._replace(record=lost.record) if is_same else None


def _agree(held: Message | None, message: Message | None) -> bool:
    if held is None or message is None:
        return held is None and message is None
    return (
        held.state is message.state
        and held.version == message.version
        and held.attempt == message.attempt
        and held.attempt_floor == message.attempt_floor
        and held.cancel_pending == message.cancel_pending
        and held.payload == message.payload
    )


def order_of(steps: Sequence[Step]) -> list[Step] | None:
    """An order of all steps of one message in which every answer is right; None: there is none.

    A step that had ended before another began stays before it.
    """
    steps = sorted(steps, key=lambda step: step.start)
    seen: set[tuple[int, tuple[object, ...]]] = set()
    whole = (1 << len(steps)) - 1
    stack: list[tuple[int, Life, list[Step]]] = [(0, Life(), [])]
    while stack:
        done, life, order = stack.pop()
        if done == whole:
            return order
        left = [n for n in range(len(steps)) if not done >> n & 1]
        first_end = min(steps[n].end for n in left)
        for n in left:
            if steps[n].start > first_end:
                break  # another had ended before this one began
            then = after(life, steps[n])
            if then is None:
                continue
            key = (done | 1 << n, _key(then))
            if key not in seen:
                seen.add(key)
                stack.append((done | 1 << n, then, [*order, steps[n]]))
    return None


def _key(life: Life) -> tuple[object, ...]:
    if life.record is None:
        return ()
    held = life.record.message
    facts = (held.state, held.version, held.attempt, held.attempt_floor, life.record.token)
    return (*facts, held.due, held.payload, held.cancel_pending)


def told(steps: Sequence[Step]) -> str:
    """The calls of one message, one a line, by their beginning: what to look at."""
    begin = min(step.start for step in steps)
    return "\n".join(
        f"{(step.start - begin) / 1e6:9.3f} – {(step.end - begin) / 1e6:9.3f} ms {_line(step)}"
        for step in sorted(steps, key=lambda step: step.start)
    )


def _line(step: Step) -> str:
    match step:
        case Put():
            return f"{step.caller} put → {step.receipt}"
        case Took():
            message = step.message
            return f"{step.caller} claim → token {step.token}, {_brief(message)}"
        case Settled():
            asked = step.settlement
            return f"{step.caller} settle token {asked.token} {asked.state} → {step.state}"
        case Amends():
            asked_for = step.amendment
            message_then = _brief(step.amended.message)
            version = "" if asked_for.version is None else f" if {asked_for.version}"
            answer = step.amended.answer
            return f"{step.caller} {asked_for.action}{version} → {answer}, {message_then}"
        case Found():
            return f"{step.caller} find → {_brief(step.message)}"
        case Lost():
            return f"{step.caller} reap → {step.reaped}"


def _brief(message: Message | None) -> str:
    if message is None:
        return "nothing"
    pending = ", cancel pending" if message.cancel_pending else ""
    return f"{message.state} v{message.version} attempt {message.attempt}{pending}"
