"""The timeline of a message: usual events are read from its fields, others were noted."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.message import Event, Message
from penstock.model.state import SETTLED, State
from penstock.model.verdict import Verdict


def lines_of(message: Message, noted: Sequence[Event]) -> list[Event]:
    """Every known event of the message, in order."""
    lines = [Event(at=message.created, event="accepted"), *noted]
    if message.claimed is not None and not release_is_noted(message, noted):
        lines.append(Event(at=message.claimed, event="released", attempt=message.attempt))
    _tell_why(message, lines)
    if message.state in SETTLED and message.settled is not None:
        lines.append(
            Event(
                at=message.settled,
                event=message.state.value,
                detail=None if message.state is State.DELIVERED else message.last_error,
                attempt=None if message.claimed is None else message.attempt,
            )
        )
    return lines


def release_is_noted(message: Message, noted: Sequence[Event]) -> bool:
    """Whether the lease in the message's fields is among the noted lines too.

    It is noted once a cancel was pending in it, or when the policies gave a reason.
    """
    if not noted:
        return False
    last = noted[-1]
    return last.event == "cancel_asked" or (
        last.event == "released" and last.attempt == message.attempt
    )


def _tell_why(message: Message, lines: list[Event]) -> None:
    """Add the policies' reason for allowing it to the release it belongs to."""
    decided = message.decided
    if decided is None or decided.verdict is not Verdict.ALLOW or not decided.detail:
        return
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].event == "released":
            lines[place] = replace(lines[place], detail=decided.detail)
            return
