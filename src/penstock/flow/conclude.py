"""CONCLUDE: what a settlement does to the cap reservations of its message."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.decision import Conclusion, End, Share, Subject
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import State

LIFE = "\n"
"""Occurs in no id: separates a message's id from the attempt at which it was redriven."""


def counted_as(message: Message) -> Message:
    """Return the message as caps count it.

    A redriven message counts as a new one: an earlier attempt may have been counted because its
    send may have arrived, but the attempt that is sent now needs a reservation of its own.
    """
    if not message.attempt_floor:
        return message
    return replace(message, id=f"{message.id}{LIFE}{message.attempt_floor}")


def shares(message: Message) -> list[Share]:
    """One Share per key of the message, each decided on its own; the message's own key is first.

    The ids of the further shares are derived from the message's, so their reservations can be found
    again by it.
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
    """The subjects that caps count for this message: itself and each of its further keys."""
    known = counted_as(message)
    if known.labels is None or not known.labels.keys:
        return [known]
    return [known, *shares(message)[1:]]


def counted_in_doubt(message: Message) -> list[Subject]:
    """The previous attempt, which may have arrived, counted apart from the send that follows."""
    doubt = f"{LIFE}?{message.attempt}"
    return [replace(one, id=f"{one.id}{doubt}") for one in shares(message)]


def sent(settlements: Sequence[Settlement]) -> list[Subject]:
    """The subjects to count before these messages are settled; a crash in between repeats it
    harmlessly.

    A message that may have arrived, in any of its attempts, is also counted if it will not be tried
    again: a cap is never exceeded.
    """
    delivered = State.DELIVERED
    return [
        subject
        for settlement in settlements
        if settlement.state is delivered or _ends_unsure(settlement)
        for subject in counted(settlement.message)
    ]


def committed(subjects: Sequence[Subject]) -> list[Conclusion]:
    """The conclusions that say that these subjects were sent."""
    return [Conclusion(subject, End.COMMIT) for subject in subjects]


def unsent(
    settlements: Sequence[Settlement], states: Sequence[State | None], hold: int
) -> list[Conclusion]:
    """The conclusions to make after the messages are settled; one that will be retried keeps its
    slot.

    Refusals by policies hold no reservation, and a lost lease is concluded by its new owner. A
    message that is scheduled again may be claimed and decided before this call: the reservation of
    that later decision stays.
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
        elif state is State.SCHEDULED:
            until = settlement.reserved_until
            if not until:
                continue
        conclusions += [Conclusion(one, end, until) for one in counted(settlement.message)]
    return conclusions


def _ends_unsure(settlement: Settlement) -> bool:
    return settlement.state is not State.SCHEDULED and settlement.may_have_arrived
