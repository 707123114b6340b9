"""BATCHES: claim and deliver, each one call of a function in `migrations/0005_hot.sql`.

The same as the shared steps `claim` and `settle` of the delivered; the suites run both. A call that
cannot be made, or read, ends with PlainWay: the store takes the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from penstock.model.outcome import Claim, Settlement
from penstock.model.state import State
from penstock.stores.postgres.calls import Calls
from penstock.stores.postgres.floors import Floors
from penstock.stores.sql.messages import Unreadable, decided_column, to_message

_SEQ, _ID, _DUE, _PRIORITY, _STATE = 0, 1, 9, 11, 12
_ORDER = itemgetter(_DUE, _ID)


class PlainWay(Exception):
    """The step is to be taken the plain way."""


class Batches:
    """Claims and deliveries of one schema."""

    def __init__(
        self,
        calls: Calls,
        schema: str,
        tokens: Iterator[int],
        floors: Floors,
        unheard: Callable[[int], None],
    ) -> None:
        """`unheard` receives the token of a claim that may be committed without an answer."""
        self._calls = calls
        self._tokens = tokens
        self._floors = floors
        self._unheard = unheard
        call = f'SELECT * FROM "{schema}".'  # noqa: S608 - it was checked when the address was read
        self._claim = f"{call}claim_due($1,$2,$3,$4,$5,$6,$7,$8)".encode()
        self._deliver = f"{call}deliver_leased($1,$2,$3,$4)".encode()

    async def claim(self, route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        """Lease due messages in order; when none is due, nothing is written."""
        token = next(self._tokens)
        look = self._floors.look(route)
        committed = False
        try:
            floors = look.values
            rows = await self._calls.call(
                self._claim,
                (
                    route.encode(),
                    *map(_number, (limit, max_bytes, token, now, now + lease)),
                    _numbers(floors["floor_dues"]),
                    _texts(floors["floor_ids"]),
                ),
                partial(self._unheard, token),
            )
            committed = True
            self._floors.looked(look)
            return self._leased(rows, token, look.last)
        except Unreadable as exc:  # the plain way finds out which one it is
            self._unheard(token)
            raise PlainWay from exc
        finally:
            look.claimed = len(rows) if committed else 0
            self._floors.end(look, committed=committed)

    def _leased(self, rows: list[Any], token: int, last: dict[int, tuple[int, str]]) -> Claim:
        if not rows:  # the route is paused
            return Claim(0)
        end = rows.pop()
        rows.sort(key=_ORDER)
        if rows and any(row[_PRIORITY] != rows[0][_PRIORITY] for row in rows):
            rows.sort(key=itemgetter(_PRIORITY), reverse=True)  # stable
        messages = tuple(map(to_message, rows))
        for row in rows:
            last[row[_PRIORITY]] = (row[_DUE], row[_ID])
        return Claim(token if rows else 0, messages, end[_DUE], end[_STATE] == 1)

    async def deliver(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        """End leases of what was delivered; a stale token changes nothing."""
        seqs = [one.message.ref for one in settlements]
        decided = [decided_column(one.kept) for one in settlements]
        rows = await self._calls.call(
            self._deliver,
            (
                _numbers(seqs),
                _numbers([one.token for one in settlements]),
                _texts(decided) if any(decided) else None,
                _number(now),
            ),
        )
        if len(rows) == len(settlements):
            return [State.DELIVERED] * len(settlements)
        left = {row[0] for row in rows}
        states: list[State | None] = []
        for seq in seqs:
            states.append(State.DELIVERED if seq in left else None)
            left.discard(seq)  # the same message again was settled already
        return states


def _number(value: int) -> bytes:
    return b"%d" % value


def _numbers(values: Sequence[int]) -> bytes:
    """An array as PostgreSQL reads it."""
    return f"{{{','.join(map(str, values))}}}".encode()


def _texts(values: Sequence[str | None]) -> bytes:
    return f"{{{','.join(map(_quoted, values))}}}".encode()


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
