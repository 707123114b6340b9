"""CONCLUDE: what a settlement means for the places that its message held in caps."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.decision import Conclusion, End
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import State


def sent(settlements: Sequence[Settlement]) -> list[Message]:
    """To be counted before the messages are settled: a crash between repeats it harmlessly.

    What may have arrived is counted too when nobody will try it again: a cap is never exceeded.
    """
    delivered = State.DELIVERED
    return [
        settlement.message
        for settlement in settlements
        if settlement.state is delivered or _ends_unsure(settlement)
    ]


def committed(messages: Sequence[Message]) -> list[Conclusion]:
    """These were sent, in the words of those who conclude."""
    return [Conclusion(message, End.COMMIT) for message in messages]


def unsent(
    settlements: Sequence[Settlement], states: Sequence[State | None], hold: int
) -> list[Conclusion]:
    """After the messages are settled: whoever will be tried again keeps its place until then.

    Refusals by policies hold nothing, and a lost lease is for its new owner to conclude.
    """
    conclusions = []
    delivered = State.DELIVERED
    for settlement, state in zip(settlements, states, strict=True):
        if state is None or state is delivered or settlement.decided is not None:
            continue
        if _ends_unsure(settlement):
            continue  # counted already
        if state is State.SCHEDULED and not settlement.refund:
            until = (settlement.due or 0) + hold
            conclusions.append(Conclusion(settlement.message, End.KEEP, until))
        else:  # unsure: cancelled while it was to be tried again
            end = End.COMMIT if settlement.unsure else End.RELEASE
            conclusions.append(Conclusion(settlement.message, end))
    return conclusions


def _ends_unsure(settlement: Settlement) -> bool:
    return settlement.unsure and settlement.state is not State.SCHEDULED
