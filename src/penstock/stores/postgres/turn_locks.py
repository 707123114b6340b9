"""TURN LOCKS: steps share a transaction only if together they lock turns of routes in one order.

Whatever changes messages of a keyed route locks the route's turns until its transaction ends. Two
transactions that lock the turns of two routes in opposite order wait for each other, until the
server fails one. So every transaction of ours locks turns in the order of the routes' names. A step
whose routes are not known beforehand is the only one in its transaction that locks turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

Turns: TypeAlias = frozenset[str]
"""The keyed routes whose turns a step locks."""
NONE: Final[Turns] = frozenset()
ANY: Final[Turns] = frozenset({""})
"""Stands for the turns of routes that are not known: no route has the empty name."""

_LOCKED: Final[ContextVar[Turns]] = ContextVar("penstock_turns", default=NONE)


@contextmanager
def locking(turns: Turns) -> Iterator[None]:
    """Say what the steps lock that are submitted within: the shared store submits them, which knows
    nothing of locks.
    """
    token = _LOCKED.set(turns)
    try:
        yield
    finally:
        _LOCKED.reset(token)


def locked() -> Turns:
    """The turns that a step submitted now locks."""
    return _LOCKED.get()


class TurnLocks:
    """The keyed routes of the schema, as far as this process knows them.

    Each new connection reads them, and every transaction that was part of a deadlock: another
    process may have added one.
    """

    def __init__(self) -> None:
        self._routes: Turns = NONE

    def learn(self, routes: Iterable[str]) -> None:
        self._routes = self._routes.union(routes)

    def of(self, routes: Iterable[str]) -> Turns:
        """The turns locked by a step on messages of these routes; one lock needs no order."""
        return self._routes.intersection(routes) if len(self._routes) > 1 else NONE

    def of_any(self) -> Turns:
        """The turns locked by a step that does not know the routes of its messages."""
        return ANY if len(self._routes) > 1 else NONE


def order(turns: Turns) -> str:
    """Steps sorted by this lock turns in order, unless one of them locks several."""
    return min(turns, default="")


def number_in_order(steps: Iterable[Turns]) -> int:
    """How many of the steps, from the first on, may share a transaction."""
    held, number = NONE, 0
    for turns in steps:
        if turns and held:
            new = turns - held
            if ANY in (turns, held) or (new and min(new) < max(held)):
                break
        held |= turns
        number += 1
    return number
