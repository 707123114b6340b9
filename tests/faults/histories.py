"""Whether calls that ran beside each other can be put into one order that explains every answer.

A search as Wing and Gong describe it, for one message at a time: what is true of each message by
itself is true of all of them together. The sequential rules are the store model's.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from penstock.model.message import Message, NewMessage
from penstock.model.outcome import (
    Amended,
    Amendment,
    Answer,
    Claim,
    Reaped,
    Receipt,
    Settlement,
)
from penstock.model.state import State
from penstock.testing.store_model import Held, StoreModel

NEAR_MS = 60_000
"""What is due within this time is due: clocks may differ by a little, and tests use hours."""
RETENTION = 10**12


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


def explains(model: StoreModel, step: Step) -> bool:
    """Take the step; whether its answer is what the rules give."""
    match step:
        case Put():
            return model.put([step.new]) == [step.receipt]
        case Took():
            return _takes(model, step)
        case Settled():
            return model.settle([step.settlement], step.now) == [step.state]
        case Amends():
            answer = model.amend(step.amendment, step.now)
            done = answer is not Answer.DONE or _agrees(model, id_of(step), step.amended.message)
            return answer is step.amended.answer and done
        case Found():
            return _agrees(model, step.id, step.message)
        case Lost():
            return model.reap(step.now + NEAR_MS) == {step.reaped.id: step.reaped.state}


def _takes(model: StoreModel, step: Took) -> bool:
    message = step.message
    claimable = model.claimable(message.route, step.now + NEAR_MS)
    if [held.new.id for held in claimable] != [message.id]:
        return False
    model.claimed(Claim(step.token, (message,)), step.until)
    return _agrees(model, message.id, message)


def _agrees(model: StoreModel, message_id: str, message: Message | None) -> bool:
    held = model.messages.get(message_id)
    if held is None or message is None:
        return held is None and message is None
    payload = b"" if held.state is State.DELIVERED else held.payload
    return (
        held.state is message.state
        and held.version == message.version
        and held.attempt == message.attempt
        and held.attempt_floor == message.attempt_floor
        and held.cancel_pending == message.cancel_pending
        and payload == message.payload
    )


def order_of(steps: Sequence[Step]) -> list[Step] | None:
    """An order of all steps of one message in which every answer is right; None: there is none.

    A step that had ended before another began stays before it.
    """
    steps = sorted(steps, key=lambda step: step.start)
    seen: set[tuple[int, tuple[object, ...]]] = set()
    whole = (1 << len(steps)) - 1
    stack: list[tuple[int, StoreModel, list[Step]]] = [(0, StoreModel(RETENTION), [])]
    while stack:
        done, model, order = stack.pop()
        if done == whole:
            return order
        left = [n for n in range(len(steps)) if not done >> n & 1]
        first_end = min(steps[n].end for n in left)
        for n in left:
            if steps[n].start > first_end:
                break  # another had ended before this one began
            after = _copied(model)
            key = (done | 1 << n, _key(after)) if explains(after, steps[n]) else None
            if key is not None and key not in seen:
                seen.add(key)
                stack.append((done | 1 << n, after, [*order, steps[n]]))
    return None


def _copied(model: StoreModel) -> StoreModel:
    messages = {name: copy.copy(held) for name, held in model.messages.items()}
    return StoreModel(model.retention, messages, dict(model.leases), set(model.paused))


def _key(model: StoreModel) -> tuple[object, ...]:
    return tuple(_facts(held) for held in model.messages.values())


def _facts(held: Held) -> tuple[object, ...]:
    facts = (held.state, held.version, held.attempt, held.attempt_floor, held.token)
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
