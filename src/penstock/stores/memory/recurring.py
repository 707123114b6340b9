"""Recurring rules in a dict: what the other stores are compared with."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.recurrence import RuleRow
from penstock.ports.recurring import DueRules, RuleListener, Swap


class MemoryRecurring:
    """A RecurringStore for one process that forgets everything when it ends."""

    def __init__(self) -> None:
        self._rows: dict[str, RuleRow] = {}
        self._listeners: list[RuleListener] = []

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        return [self._rows.get(rule_id) for rule_id in ids]

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        return [self._swap(swap) for swap in swaps]

    async def due(self, now: int, limit: int) -> DueRules:
        lined = sorted((row.wake, row.id) for row in self._rows.values() if row.wake is not None)
        due = [rule_id for wake, rule_id in lined if wake <= now]
        later = lined[len(due) :]
        next_wake = later[0][0] if later and len(due) <= limit else None
        return DueRules(tuple(self._rows[rule_id] for rule_id in due[:limit]), next_wake)

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        ids = sorted(rule_id for rule_id in self._rows if after is None or rule_id > after)
        return [self._rows[rule_id] for rule_id in ids[:limit]]

    async def managed(self) -> list[str]:
        return sorted(row.id for row in self._rows.values() if row.managed)

    def listen(self, listener: RuleListener) -> None:
        self._listeners.append(listener)

    def _swap(self, swap: Swap) -> bool:
        stored = self._rows.get(swap.id)
        if (0 if stored is None else stored.revision) != swap.expected:
            return False
        if swap.row is None:
            self._rows.pop(swap.id, None)
            return True
        self._rows[swap.id] = swap.row
        if swap.row.wake is not None:
            for listener in self._listeners:
                listener(swap.row.wake)
        return True
