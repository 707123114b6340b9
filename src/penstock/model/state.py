"""The states of a message and the one table of permitted transitions."""

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
            State.CANCELLED,  # its cancel was pending and the send did not happen
        }
    ),
    State.DEAD: frozenset({State.SCHEDULED}),  # redrive
    State.DELIVERED: frozenset(),
    State.BLOCKED: frozenset(),
    State.EXPIRED: frozenset(),
    State.CANCELLED: frozenset(),
}

SETTLED: frozenset[State] = frozenset(State) - {State.SCHEDULED, State.LEASED}
"""States that no step leaves without a caller's request."""

PURGEABLE: frozenset[State] = SETTLED - {State.DEAD}
"""Settled states that are purged after the retention time; dead messages wait for an operator."""


DELETABLE: frozenset[State] = frozenset({State.DEAD})
"""States in which a message can be deleted: only a delete or a redrive ends a dead one."""

ERASABLE: frozenset[State] = frozenset(State) - {State.LEASED}
"""States in which a message can be erased at once; a leased one is erased after its lease."""


def may_become(now: State, then: State) -> bool:
    return then in TRANSITIONS[now]


def after_lease(wanted: State, *, cancel_asked: bool) -> State:
    """The state a lease ends in: a message whose cancel is pending is never scheduled again."""
    return State.CANCELLED if cancel_asked and wanted is State.SCHEDULED else wanted
