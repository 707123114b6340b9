"""BATCHES: claim and deliver, each one call of a function in `migrations/0005_hot.sql`.

The same as the shared steps `claim` and `settle` of the delivered; the suites run both. A call that
cannot be made, or read, ends with PlainWay: the store takes the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import psycopg

from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Claim, Settlement
from penstock.model.state import State
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.calls import Calls, NoAnswer
from penstock.stores.postgres.errors import translate
from penstock.stores.postgres.floors import Floors
from penstock.stores.sql.messages import Unreadable, decided_column, to_message

log = logging.getLogger("penstock.stores.postgres")

_UNUSABLE: Final = {"42883", "42501"}
"""The function is not there, or may not be called …"""
_UNUSABLE_S = 60
"""… and is not tried again for so many seconds."""
_SEQ, _ID, _DUE, _PRIORITY, _STATE = 0, 1, 9, 11, 12
_ORDER = itemgetter(_DUE, _ID)


class PlainWay(Exception):
    """The step is to be taken the plain way."""


class Batches:
    """Claims and deliveries of one schema."""

    def __init__(
        self,
        calls: Calls,
        address: Address,
        tokens: Iterator[int],
        floors: Floors,
        unheard: Callable[[int], None],
    ) -> None:
        """`unheard` receives the token of a claim that may be committed without an answer."""
        self._calls = calls
        self._tokens = tokens
        self._floors = floors
        self._unheard = unheard
        self._address = address
        call = f'SELECT * FROM "{address.schema}".'  # noqa: S608 - it was checked when it was read
        self._statements = {
            "claim_due": f"{call}claim_due($1,$2,$3,$4,$5,$6,$7,$8)".encode(),
            "deliver_leased": f"{call}deliver_leased($1,$2,$3,$4)".encode(),
        }
        self._usable_at: dict[str, float] = {}
        """Function → when it is tried again."""

    async def claim(self, route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        """Lease due messages in order; when none is due, nothing is written."""
        token = next(self._tokens)
        look = self._floors.look(route)
        committed = False
        try:
            floors = look.values
            rows = await self._call(
                "claim_due",
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
        except Exception as exc:
            if committed:
                self._unheard(token)
            if isinstance(exc, Unreadable):  # the plain way finds out which row it is
                raise PlainWay from exc
            raise
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
        rows = await self._call(
            "deliver_leased",
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

    async def _call(
        self,
        function: str,
        values: Sequence[bytes | None],
        in_doubt: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        if time.monotonic() < self._usable_at.get(function, 0.0):
            raise PlainWay
        try:
            return await self._calls.call(self._statements[function], values, in_doubt)
        except NoAnswer:
            raise
        except (psycopg.Error, StoreUnavailable) as exc:
            self._tell(function, exc)
            raise PlainWay from exc

    def _tell(self, function: str, why: psycopg.Error | StoreUnavailable) -> None:
        """Log the failure; not each call that is refused until the next try to connect."""
        again = ""
        if isinstance(why, psycopg.Error):
            if why.sqlstate in _UNUSABLE:
                self._usable_at[function] = time.monotonic() + _UNUSABLE_S
                again = f"; {function} is called again in {_UNUSABLE_S} s"
            reason = translate(why, self._address.name).message
        elif why.__cause__ is None:
            return
        else:
            reason = why.message
        log.warning("%s failed, the same step is taken in a thread%s: %s", function, again, reason)


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
