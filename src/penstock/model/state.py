"""The states of a message and the one table of what may follow what."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    SCHEDULED = "scheduled"
    LEASED = "leased"
    DELIVERED = "delivered"
    DEAD = "dead"
    BLOCKED = "blocked"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.SCHEDULED: frozenset({State.LEASED, State.CANCELLED, State.EXPIRED}),
    State.LEASED: frozenset(
        {
            State.DELIVERED,
            State.SCHEDULED,  # retry, deferred, lease lost
            State.DEAD,
            State.BLOCKED,
            State.EXPIRED,
            State.CANCELLED,  # cancel was asked while leased and the send did not happen
        }
    ),
    State.DEAD: frozenset({State.SCHEDULED}),  # redrive
    State.DELIVERED: frozenset(),
    State.BLOCKED: frozenset(),
    State.EXPIRED: frozenset(),
    State.CANCELLED: frozenset(),
}

SETTLED: frozenset[State] = frozenset(State) - {State.SCHEDULED, State.LEASED}
"""States in which nothing more happens by itself."""

PURGEABLE: frozenset[State] = SETTLED - {State.DEAD}
"""Settled states forgotten after the retention time; the dead wait for a person."""


DELETABLE: frozenset[State] = frozenset({State.DEAD})
"""States in which a message can be deleted: nothing else ends a dead one but a redrive."""

ERASABLE: frozenset[State] = frozenset(State) - {State.LEASED}
"""States in which a message can be erased at once; one that is leased, when its lease has ended."""


def may_become(now: State, then: State) -> bool:
    return then in TRANSITIONS[now]


def after_lease(wanted: State, *, cancel_asked: bool) -> State:
    """Where a lease really ends: a message asked to be cancelled never goes back to wait."""
    return State.CANCELLED if cancel_asked and wanted is State.SCHEDULED else wanted
