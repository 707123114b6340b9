"""The seam to a store of recurring rules.

The rules of `ports/store.py` hold here too. A store reads four fields of a row: its id, its
revision, when it is due to be read (`wake`) and whether settings manage it; it stores the rest
unread. `penstock.testing.recurring_suite` is the executable form of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from penstock.model.recurrence import RuleRow

RuleListener: TypeAlias = Callable[[int], None]
"""Called with a moment at which a rule is due sooner than was known."""
NEWS = "@recurring"
"""Stands for a route in a store's wake-ups; no route has such a name."""
LOOK_MS = 1_000
"""Period of the safety-net read where other processes' writes are announced."""


class Swap(msgspec.Struct, frozen=True):
    """Write a row if it is still the one that was read."""

    id: str
    expected: int
    """The revision that was read; 0: there was no row."""
    row: RuleRow | None
    """The new row; None: delete it."""


class DueRules(msgspec.Struct, frozen=True):
    """Rows to look at now, and when the next one is."""

    rows: tuple[RuleRow, ...] = ()
    next_wake: int | None = None
    """The earliest `wake` of the rows that are not due; only where every due row was given."""


class RecurringStore(Protocol):
    """Rules as rows. Any number of them costs nothing while none is due."""

    @property
    def look_ms(self) -> int:
        """Milliseconds after which a planter reads the due rows again without a wake-up."""
        ...

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        """The rows of these ids, in order."""
        ...

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """Compare and set each row on its own, in order; False: the row has changed since.

        Durable when it returns. A swap whose answer was lost may have been done: the row shows it.
        """
        ...

    async def due(self, now: int, limit: int) -> DueRules:
        """At most `limit` rows with `wake` at or before `now`, the earliest first.

        Rows that were given to another process, which may be planting them, may be left out until
        a second after that process's last sign of life.
        """
        ...

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        """Rows whose id follows `after`, in the order of their ids."""
        ...

    async def managed(self) -> list[str]:
        """The ids of rows that settings manage, in order."""
        ...

    def listen(self, listener: RuleListener) -> None:
        """Register a callback that receives the `wake` of a row that was written.

        It is called for every row that this process wrote, and, as far as the store reports them,
        for rows of other processes that are earlier than all others; `look_ms` bounds the rest.
        """
        ...
