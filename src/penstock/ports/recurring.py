"""The seam to whatever keeps recurring rules.

The rules of `ports/store.py` hold here too. A store knows four things of a row: its id, its
revision, when it is to be looked at (`wake`) and whether settings manage it; the rest it keeps as
it is. `penstock.testing.recurring_suite` is the executable form of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from penstock.model.recurrence import RuleRow

RuleListener: TypeAlias = Callable[[int], None]
"""Called with a moment at which a rule is to be looked at sooner than was known."""
NEWS = "@recurring"
"""In the place of a route in a store's wake-ups; no route has such a name."""
LOOK_MS = 1_000
"""Between two looks where other processes' writes are heard of: the safety net."""


class Swap(msgspec.Struct, frozen=True):
    """Write a row if it is still the one that was read."""

    id: str
    expected: int
    """The revision that was read; 0: there was no row."""
    row: RuleRow | None
    """None: delete it."""


class DueRules(msgspec.Struct, frozen=True):
    """Rows to look at now, and when the next one is."""

    rows: tuple[RuleRow, ...] = ()
    next_wake: int | None = None
    """The earliest `wake` of the rows that are not due; only where every due row was given."""


class RecurringStore(Protocol):
    """Rules as rows. Any number of them costs nothing while none is due."""

    @property
    def look_ms(self) -> int:
        """Milliseconds after which a planter that nobody woke looks again."""
        ...

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        """The rows of these ids, in order."""
        ...

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """Compare and set, each by itself, in order; False: the row is another one by now.

        Durable when it returns. A swap whose answer was lost may have been done: the row says so.
        """
        ...

    async def due(self, now: int, limit: int) -> DueRules:
        """At most `limit` rows with `wake` at or before `now`, the earliest first."""
        ...

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        """Rows whose id comes after this one, in the order of their ids."""
        ...

    async def managed(self) -> list[str]:
        """The ids of rows that settings manage, in order."""
        ...

    def listen(self, listener: RuleListener) -> None:
        """Call back when a row that was written is to be looked at, with that moment.

        Every row that this process wrote, and of those of other processes what is nearer than
        every other, as far as the store is told of them; `look_ms` bounds what it is not told of.
        """
        ...
