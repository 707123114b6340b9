"""RECURRING: every rule of the store under one hash tag, a script beside each function.

`<prefix>:{recurring}:…`
  r  HASH  id → "<revision> <mark of the call that wrote it> <row>", the row as JSON
  w  ZSET  id by the moment at which the row is to be looked at; rows that sleep are not there
  i  ZSET  every id, all scored 0: in the order of lists
  m  SET   ids that settings manage
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from penstock.model.recurrence import RuleRow, decode_row, encode_row
from penstock.ports.recurring import LOOK_MS, NEWS, DueRules, RuleListener, Swap
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.redis_kit.wake import Wakeups

_SWAP = Script("stores/redis/recurring/swap.lua")
_DUE = Script("stores/redis/recurring/due.lua")

CALL = 500
"""Rows of one call."""


class RedisRecurring:
    """Rules in Redis or Redis Cluster."""

    def __init__(self, runner: Runner, prefix: str, wakeups: Wakeups) -> None:
        self._runner = runner
        self._wakeups = wakeups
        self._listeners: list[RuleListener] = []
        start = f"{prefix}:{{recurring}}:"
        self._rows, self._wakes, self._ids, self._managed = (
            (start + letter).encode() for letter in "rwim"
        )
        wakeups.add(self._heard)

    @property
    def look_ms(self) -> int:
        return LOOK_MS

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        found: list[bytes | None] = []
        for first in range(0, len(ids), CALL):
            found += await self._runner.call("HMGET", self._rows, *ids[first : first + CALL])
        return [None if one is None else _row(one) for one in found]

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        done: list[bool] = []
        for first in range(0, len(swaps), CALL):
            done += await self._swap(swaps[first : first + CALL])
        return done

    async def _swap(self, swaps: Sequence[Swap]) -> list[bool]:
        keys = (self._rows, self._wakes, self._ids, self._managed)
        arguments = [argument for swap in swaps for argument in _arguments(swap)]
        group = Group(0, keys, [len(swaps)], arguments)
        common = [self._wakeups.channel, NEWS, secrets.token_hex(4)]
        replies = await self._runner.single(_SWAP, group, common)
        done = [reply == 1 for reply in replies]
        for swap, is_done in zip(swaps, done, strict=True):
            if is_done and swap.row is not None and swap.row.wake is not None:
                self._tell(swap.row.wake)
        return done

    async def due(self, now: int, limit: int) -> DueRules:
        group = Group(0, (self._rows, self._wakes))
        rows, next_wake = await self._runner.single(_DUE, group, [now, limit], writes=False)
        return DueRules(tuple(map(_row, rows)), None if next_wake is None else int(next_wake))

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        lowest = "-" if after is None else f"({after}"
        ids = await self._runner.call("ZRANGEBYLEX", self._ids, lowest, "+", "LIMIT", 0, limit)
        rows = await self.rules([name.decode() for name in ids])
        return [row for row in rows if row is not None]

    async def managed(self) -> list[str]:
        return sorted(name.decode() for name in await self._runner.call("SMEMBERS", self._managed))

    def listen(self, listener: RuleListener) -> None:
        self._listeners.append(listener)

    def _heard(self, route: str, wake: int) -> None:
        """Another process wrote a row that is nearer than every other."""
        if route == NEWS:
            self._tell(wake)

    def _tell(self, wake: int) -> None:
        for listener in self._listeners:
            listener(wake)


def _arguments(swap: Swap) -> tuple[bytes, ...]:
    row = swap.row
    if row is None:
        return swap.id.encode(), b"%d" % swap.expected, b"", b"", b"", b""
    return (
        swap.id.encode(),
        b"%d" % swap.expected,
        b"%d" % row.revision,
        b"" if row.wake is None else b"%d" % row.wake,
        b"1" if row.managed else b"0",
        encode_row(row),
    )


def _row(stored: bytes) -> RuleRow:
    return decode_row(stored.split(b" ", 2)[2])
