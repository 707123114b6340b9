"""Recurring rules in a dict: the reference for the other stores."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from penstock.model.recurrence import RuleRow
from penstock.ports.recurring import LOOK_MS, DueRules, RuleListener, Swap


class MemoryRecurring:
    """A RecurringStore for one process; its content ends with the process."""

    def __init__(self) -> None:
        self._rows: dict[str, RuleRow] = {}
        self._line: list[tuple[int, str]] = []
        """A heap of wakes and ids; an entry that differs from its row is an old one."""
        self._listeners: list[RuleListener] = []

    @property
    def look_ms(self) -> int:
        return LOOK_MS

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        return [self._rows.get(rule_id) for rule_id in ids]

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        return [self._swap(swap) for swap in swaps]

    async def due(self, now: int, limit: int) -> DueRules:
        due: list[tuple[int, str]] = []
        while len(due) < limit and (head := self._head(due)) is not None and head <= now:
            due.append(heappop(self._line))
        next_wake = self._head(due) if len(due) < limit else None
        for one in due:
            heappush(self._line, one)
        return DueRules(tuple(self._rows[rule_id] for _, rule_id in due), next_wake)

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        ids = sorted(rule_id for rule_id in self._rows if after is None or rule_id > after)
        return [self._rows[rule_id] for rule_id in ids[:limit]]

    async def managed(self) -> list[str]:
        return sorted(row.id for row in self._rows.values() if row.managed)

    def listen(self, listener: RuleListener) -> None:
        self._listeners.append(listener)

    def _head(self, taken: list[tuple[int, str]]) -> int | None:
        """The earliest wake besides those taken; old entries before it are dropped."""
        while self._line:
            wake, rule_id = self._line[0]
            row = self._rows.get(rule_id)
            if row is not None and row.wake == wake and taken[-1:] != [(wake, rule_id)]:
                return wake
            heappop(self._line)
        return None

    def _swap(self, swap: Swap) -> bool:
        stored = self._rows.get(swap.id)
        if (0 if stored is None else stored.revision) != swap.expected:
            return False
        if swap.row is None:
            self._rows.pop(swap.id, None)
            return True
        self._rows[swap.id] = swap.row
        if swap.row.wake is not None:
            heappush(self._line, (swap.row.wake, swap.id))
            for listener in self._listeners:
                listener(swap.row.wake)
        return True
