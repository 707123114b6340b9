"""CONCLUDE: what a settlement means for the places that its message held in caps."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.decision import Conclusion, End, Share, Subject, mark_of
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import State

LIFE = "\n"
"""Stands in no id: between that of a message and the attempt that it was redriven at."""


def counted_as(message: Message) -> Message:
    """The message as caps know it.

    One that was redriven is a new one to them: it may have been counted because its last send may
    have arrived, but what is sent now needs a place now.
    """
    if not message.attempt_floor:
        return message
    return replace(message, id=f"{message.id}{LIFE}{message.attempt_floor}")


def shares(message: Message) -> list[Share]:
    """Each key of the message, as caps know it, on its own; the message's own key is the first.

    The ids of the others are made of the message's: what they hold is found again by it.
    """
    known = counted_as(message)
    return [
        Share(
            known.id if place == 0 else f"{known.id}{LIFE}+{place}",
            known.route,
            key,
            known.due,
            known.expires,
            known.labels,
            known.decided,
        )
        for place, key in enumerate(keys_of(message))
    ]


def keys_of(message: Message) -> tuple[str, ...]:
    """Everybody whom it concerns, once, its own key first."""
    labels = message.labels
    if labels is None or not labels.keys:
        return (message.key,)
    return tuple(dict.fromkeys((message.key, *labels.keys)))


def counted(message: Message) -> list[Subject]:
    """What caps count of it: the message itself, and each of its further keys."""
    known = counted_as(message)
    if known.labels is None or not known.labels.keys:
        return [known]
    return [known, *shares(message)[1:]]


def counted_in_doubt(message: Message) -> list[Subject]:
    """The attempt before this one, which may have arrived, apart from the send that is to come."""
    doubt = f"{LIFE}?{message.attempt}"
    return [replace(one, id=f"{one.id}{doubt}") for one in shares(message)]


def sent(settlements: Sequence[Settlement]) -> list[Subject]:
    """To be counted before the messages are settled: a crash between repeats it harmlessly.

    What may have arrived, in any of its attempts, is counted too when nobody will try it again: a
    cap is never exceeded.
    """
    delivered = State.DELIVERED
    return [
        subject
        for settlement in settlements
        if settlement.state is delivered or _ends_unsure(settlement)
        for subject in counted(settlement.message)
    ]


def committed(subjects: Sequence[Subject]) -> list[Conclusion]:
    """These were sent, in the words of those who conclude."""
    return [Conclusion(subject, End.COMMIT) for subject in subjects]


def unsent(
    settlements: Sequence[Settlement], states: Sequence[State | None], hold: int
) -> list[Conclusion]:
    """After the messages are settled: whoever will be tried again keeps its place until then.

    Refusals by policies hold nothing, and a lost lease is for its new owner to conclude. A message
    that is scheduled again may be claimed before this is said: the mark of the lease tells what it
    reserved from what the next one has.
    """
    conclusions: list[Conclusion] = []
    delivered = State.DELIVERED
    for settlement, state in zip(settlements, states, strict=True):
        if state is None or state is delivered or settlement.decided is not None:
            continue
        if _ends_unsure(settlement):
            continue  # counted already
        end, until = End.RELEASE, 0
        if state is State.SCHEDULED and (not settlement.refund or settlement.may_have_arrived):
            due = settlement.message.due if settlement.due is None else settlement.due
            end, until = End.KEEP, due + hold
        elif settlement.may_have_arrived:  # cancelled while it was to be tried again
            end = End.COMMIT
        mark = mark_of(settlement.token)
        conclusions += [Conclusion(one, end, until, mark) for one in counted(settlement.message)]
    return conclusions


def _ends_unsure(settlement: Settlement) -> bool:
    return settlement.state is not State.SCHEDULED and settlement.may_have_arrived
