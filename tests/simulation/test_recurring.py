"""Whatever goes wrong, every moment of every rule has one message or a counted reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from penstock.flow import recur as recur_flow
from penstock.flow import recurring as recurring_flow
from penstock.flow.recur import Plant, Planter
from penstock.model import recurrence
from penstock.model.recurrence import Planting, RuleRow
from penstock.ports.recurring import Swap
from penstock.stores.memory.recurring import MemoryRecurring
from tests.simulation.recurring import recur

SEEDS = 60


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What processes log of their faults is expected."""
    logger = logging.getLogger("penstock")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)


_PLANT = recurrence.plant
_CHANGE = recurrence.change
_ROWS = Plant.rows


async def _advances_first(self: Plant, rows: Sequence[RuleRow], now: int, **how: Any) -> Any:
    """The row moves on, and then its occurrences are put: a death in between loses them."""
    plans = [_PLANT(row, now) for row in rows]
    told = await self._advance(rows, [plan.row for plan in plans])
    del how
    for row, plan in zip(rows, plans, strict=True):
        news = [recurrence.occurrence(row, moment) for moment in plan.moments]
        await self._intake.put(news, now)
    return told


def _sets_blindly(self: MemoryRecurring, swap: Swap) -> bool:
    """No compare before the set."""
    if swap.row is None:
        return self._rows.pop(swap.id, None) is not None
    self._rows[swap.id] = swap.row
    return True


def _uncounted(row: RuleRow, now: int, **how: Any) -> Planting:
    """What was missed is not counted."""
    step = _PLANT(row, now, **how)
    return replace(step, row=replace(step.row, missed=row.missed))


def _skips_uncounted(row: RuleRow, now: int, **how: Any) -> Planting:
    step = _PLANT(row, now, **how)
    return replace(step, row=replace(step.row, skipped=row.skipped))


def _changes_from_now(row: RuleRow | None, *args: Any, **how: Any) -> RuleRow:
    """A change forgets what was planted ahead: that moment comes again under the new rule."""
    after = _CHANGE(row, *args, **how)
    return after if row is None or after is row else replace(after, cursor=after.changed)


def _changes_too_late(row: RuleRow | None, *args: Any, **how: Any) -> RuleRow:
    """A change skips the first moment of the new rule."""
    after = _CHANGE(row, *args, **how)
    if row is None or after is row or after.next is None:
        return after
    return recurrence.aimed(replace(after, cursor=after.next))


def _limitless(row: RuleRow, now: int, **how: Any) -> Planting:
    """More are planted than the rule may have."""
    step = _PLANT(replace(row, rule=replace(row.rule, limit=None)), now, **how)
    return replace(step, row=replace(step.row, rule=row.rule))


def _pauses_nothing(row: RuleRow | None, *args: Any, **how: Any) -> RuleRow:
    """A paused rule goes on."""
    after = _CHANGE(row, *args, **how)
    return replace(after, wake=after.next) if after.rule.paused else after


def _plants_paused(row: RuleRow, now: int, **how: Any) -> Planting:
    step = _PLANT(replace(row, rule=replace(row.rule, paused=False)), now, **how)
    return replace(step, row=replace(step.row, rule=row.rule))


async def _sees_nothing(self: Plant, rows: Sequence[RuleRow]) -> set[str]:
    """Whatever the occurrence before does, it counts as settled."""
    del self, rows
    return set()


async def _cancels_nothing(self: Plant, plans: Sequence[Planting], now: int) -> None:
    """What is to be replaced goes out, too."""
    del self, plans, now


def _repeats_ahead(row: RuleRow, now: int, **how: Any) -> Planting:
    """What was planted ahead is not accounted for, and comes again."""
    step = _PLANT(row, now, **how)
    cursor = min(step.row.cursor, now)
    return replace(step, row=recurrence.aimed(replace(step.row, cursor=cursor)))


async def _never_looks_again(self: Planter) -> None:
    """Planted is what was there at the start; wake-ups are all it hears of the rest."""
    while True:
        await self._look()
        await self._alarm.wait(None)


def _falls_asleep(self: Planter, now: int, next_wake: int | None) -> int:
    """Only the nearest moment that it knew wakes it, wherever a clock has gone meanwhile."""
    del self
    return (1 << 61) if next_wake is None else max(next_wake, now + 1)


def _a_pause_is_not_kept() -> ExitStack:
    stack = ExitStack()
    stack.enter_context(patch.object(recurring_flow, "change", _pauses_nothing))
    stack.enter_context(patch.object(recur_flow, "plant", _plants_paused))
    return stack


MUTANTS: dict[str, tuple[int, Any]] = {
    "advance before put": (20, lambda: patch.object(Plant, "rows", _advances_first)),
    "no compare before the set": (
        20,
        lambda: patch.object(MemoryRecurring, "_swap", _sets_blindly),
    ),
    "missed and not counted": (20, lambda: patch.object(recur_flow, "plant", _uncounted)),
    "skipped and not counted": (20, lambda: patch.object(recur_flow, "plant", _skips_uncounted)),
    "a change forgets what was planted ahead": (
        20,
        lambda: patch.object(recurring_flow, "change", _changes_from_now),
    ),
    "a change leaves out a moment": (
        20,
        lambda: patch.object(recurring_flow, "change", _changes_too_late),
    ),
    "a change does not plant what is due": (
        20,
        lambda: patch.object(recurring_flow, "overdue", lambda _row, _now: False),
    ),
    "a limit is not kept": (20, lambda: patch.object(recur_flow, "plant", _limitless)),
    "a pause is not kept": (20, _a_pause_is_not_kept),
    "an occurrence before that is not looked at": (
        20,
        lambda: patch.object(Plant, "_unsettled", _sees_nothing),
    ),
    "one that is replaced and not cancelled": (
        20,
        lambda: patch.object(Plant, "_cancel", _cancels_nothing),
    ),
    "planted ahead and not accounted for": (
        20,
        lambda: patch.object(recur_flow, "plant", _repeats_ahead),
    ),
    "a planter that falls asleep": (400, lambda: patch.object(Planter, "_next", _falls_asleep)),
    "a planter that looks once": (20, lambda: patch.object(Planter, "run", _never_looks_again)),
}
"""Name → (seeds within which it is found, how to put it in place)."""


@pytest.mark.slow
def test_every_moment_has_one_message_or_a_counted_reason() -> None:
    planted = 0
    for seed in range(SEEDS):
        server = recur(seed)
        assert server.broken == [], f"recur({seed})"
        planted += len(server.made)
    assert planted > 10 * SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_in_planting_is_found(name: str) -> None:
    seeds, make = MUTANTS[name]
    with make():
        assert any(recur(seed).broken for seed in range(seeds))


def test_a_seed_gives_the_same_run_twice() -> None:
    assert recur(3).made == recur(3).made
