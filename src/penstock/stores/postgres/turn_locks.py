"""TURN LOCKS: a transaction locks the turns of all its steps first, in the order of the routes.

Whatever changes messages of a keyed route locks the route's turns until its transaction ends: the
triggers see to that. Two transactions that lock the turns of two routes in opposite order, or one
of them turns and a message and the other the message first, wait for each other, until the server
fails one. So every transaction of ours locks turns before any message, in the order of the routes'
names; the functions of the schema do the same (`lock_turns` in 0005_hot.sql). A step says which
routes its messages have, or the statement that finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple


class Turns(NamedTuple):
    """The routes whose turns a step locks."""

    routes: frozenset[str] = frozenset()
    statement: str | None = None
    """The name of a statement that finds more of them …"""
    values: Mapping[str, Any] = {}
    """… with these values."""


NONE: Final = Turns()
_LOCKED: Final[ContextVar[Turns]] = ContextVar("penstock_turns", default=NONE)


@contextmanager
def locking(turns: Turns) -> Iterator[None]:
    """Name the turns that steps submitted within this block lock: the shared store, which submits
    them, knows nothing of locks.
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
        self._routes: frozenset[str] = frozenset()

    def learn(self, routes: Iterable[str]) -> None:
        self._routes = self._routes.union(routes)

    def of(self, routes: Iterable[str]) -> Turns:
        """The turns locked by a step on messages of these routes; one lock needs no order."""
        return Turns(self._routes.intersection(routes)) if len(self._routes) > 1 else NONE

    def found(self, statement: str, values: Mapping[str, Any], routes: Iterable[str] = ()) -> Turns:
        """The turns locked by a step on messages whose routes the statement finds, and of these."""
        turns = self.of(routes)
        return turns if turns is NONE else Turns(turns.routes, statement, values)

    def in_order(self, routes: Iterable[str]) -> list[str]:
        """The keyed ones among these routes, in the order in which turns are locked."""
        return sorted(self._routes.intersection(routes))
