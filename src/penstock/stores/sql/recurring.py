"""RECURRING: rules in a table of their own (recurring.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.recurrence import RuleRow, decode_row, encode_row
from penstock.ports.recurring import NEWS, DueRules, RuleListener, Swap
from penstock.stores.sql.messages import wake
from penstock.stores.sql.tx import Runner, Tx


class SqlRecurring:
    """Rules beside the messages, in the same database."""

    def __init__(self, runner: Runner, look_ms: int) -> None:
        self._runner = runner
        self._look_ms = look_ms
        self._listeners: list[RuleListener] = []

    @property
    def look_ms(self) -> int:
        return self._look_ms

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        return await self._runner.submit(lambda tx: _rules(tx, ids), writes=False)

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        done = await self._runner.submit(lambda tx: _swap_all(tx, swaps), rows=len(swaps))
        for swap, is_done in zip(swaps, done, strict=True):
            if is_done and swap.row is not None and swap.row.wake is not None:
                self.heard(NEWS, swap.row.wake)
        return done

    async def due(self, now: int, limit: int) -> DueRules:
        return await self._runner.submit(lambda tx: _due(tx, now, limit), writes=False)

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        values = (after or "", limit)
        return await self._runner.submit(
            lambda tx: list(_rows(tx.query("rules_after", values))), writes=False
        )

    async def managed(self) -> list[str]:
        return await self._runner.submit(
            lambda tx: [name for (name,) in tx.query("managed_rules")], writes=False
        )

    def listen(self, listener: RuleListener) -> None:
        self._listeners.append(listener)

    def heard(self, route: str, wake: int) -> None:
        """A row was written, here or by another process; other wake-ups are not ours."""
        if route == NEWS:
            for listener in self._listeners:
                listener(wake)


def _rules(tx: Tx, ids: Sequence[str]) -> list[RuleRow | None]:
    found = dict(tx.query("rules_of", {"ids": tx.array(ids)}))
    return [decode_row(found[name]) if name in found else None for name in ids]


def _due(tx: Tx, now: int, limit: int) -> DueRules:
    rows = _rows(tx.query("due_rules", (now, limit)))
    if len(rows) == limit:
        return DueRules(rows)
    return DueRules(rows, tx.one("next_rule", (now,))[0])


def nearest_rule(tx: Tx) -> int | None:
    """The earliest moment at which a rule is to be looked at; None: there is none."""
    (wake,) = tx.one("first_rule")
    return None if wake is None else int(wake)


def _swap_all(tx: Tx, swaps: Sequence[Swap]) -> list[bool]:
    """Swap the rows, and wake other planters if one of them is due before every other row."""
    head = nearest_rule(tx)
    done = _swapped(tx, swaps)
    written = [swap.row for swap, is_done in zip(swaps, done, strict=True) if is_done]
    nearest = min((row.wake for row in written if row and row.wake is not None), default=None)
    if nearest is not None and (head is None or nearest < head):
        wake(tx, NEWS, nearest)
    return done


def _swapped(tx: Tx, swaps: Sequence[Swap]) -> list[bool]:
    """Swap the rows together if each is of another rule, as a planter's are."""
    advances = all(swap.expected and swap.row is not None for swap in swaps)
    if advances and len({swap.id for swap in swaps}) == len(swaps):
        answers = tx.each("update_rule", [(*_values(swap), swap.expected) for swap in swaps])
        return [answer is not None for answer in answers]
    return [_swap(tx, swap) for swap in swaps]


def _swap(tx: Tx, swap: Swap) -> bool:
    if swap.row is None:
        return tx.one("delete_rule", (swap.id, swap.expected)) is not None
    if swap.expected == 0:
        return tx.one("insert_rule", _values(swap)) is not None
    return tx.one("update_rule", (*_values(swap), swap.expected)) is not None


def _values(swap: Swap) -> tuple[Any, ...]:
    row = swap.row
    assert row is not None, "those without are deleted"  # noqa: S101 - for the type
    return (row.revision, row.wake, int(row.managed), encode_row(row), row.id)


def _rows(found: Sequence[Any]) -> tuple[RuleRow, ...]:
    return tuple(decode_row(body) for (body,) in found)
