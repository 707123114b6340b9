"""SETTLE: end leases by the outcomes of their sends; a stale token changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.model import lifecycle
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.items import decided_column, expiry, list_key, message_pk
from penstock.stores.dynamodb.put import TRIES
from penstock.stores.dynamodb.session import Session
from penstock.stores.dynamodb.table import Change

_DELIVERED = State.DELIVERED
_GONE = ("b", "cp", "h", "p", "tk")
"""Attributes that a delivered message loses."""


class Settling:
    """Ends leases, and tracks how much is left of those issued here."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: Counter[int] = Counter()

    def began(self, token: int, number: int) -> None:
        self._open[token] = number

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        states: list[State | None] = [None] * len(settlements)
        indexes = list(range(len(settlements)))
        while indexes:  # a second end of one lease follows the first
            firsts: dict[str, int] = {}
            for index in indexes:
                firsts.setdefault(settlements[index].message.id, index)
            done = set(firsts.values())
            await self._settle_distinct(settlements, sorted(done), states, now)
            indexes = [index for index in indexes if index not in done]
        retired = [
            s.message.id for s, state in zip(settlements, states, strict=True) if state in PURGEABLE
        ]
        await self._session.retire(retired, now)
        await self._close(settlements, states)
        return states

    async def _settle_distinct(
        self,
        settlements: Sequence[Settlement],
        indexes: Sequence[int],
        states: list[State | None],
        now: int,
    ) -> None:
        quick = [index for index in indexes if settlements[index].state is _DELIVERED]
        slow = [index for index in indexes if settlements[index].state is not _DELIVERED]
        if quick:
            changes = [self._delivered(settlements[index], now) for index in quick]
            sent: list[Message] = []
            for index, done in zip(quick, await self._session.table.change(changes), strict=True):
                if done:
                    states[index] = _DELIVERED
                    sent.append(settlements[index].message)
                else:
                    slow.append(index)
            if self._session.keyed:
                await self._session.bring_back(sent, now, exact=True)
        for _ in range(TRIES):
            if not slow:
                return
            slow = await self._read_and_settle(settlements, slow, states, now)

    def _delivered(self, settlement: Settlement, now: int) -> Change:
        """`lifecycle.settle` of a delivered message without reading it, the most common end.

        It fails if the item has changed since the claim; `_read_and_settle` then takes the step.
        """
        message, session = settlement.message, self._session
        shard = session.shape.shard(message.id)
        sets = {
            "s": {"S": _DELIVERED.value},
            "se": {"N": str(now)},
            "l": {"S": list_key(_DELIVERED.value, message.route, shard)},
            "n": {"N": str(message.ref + 1)},
            "ttl": {"N": str(expiry(now, session.retention))},
        }
        if (kept := settlement.kept) is not None:
            sets["de"] = decided_column(kept)
        return Change(message_pk(message.id), str(message.ref), sets, _GONE, settlement.token)

    async def _read_and_settle(
        self,
        settlements: Sequence[Settlement],
        indexes: Sequence[int],
        states: list[State | None],
        now: int,
    ) -> list[int]:
        """Read, then write; the answer is the indexes of the messages changed concurrently."""
        session = self._session
        found = await session.read([settlements[index].message.id for index in indexes])
        steps = []
        for index in indexes:
            loaded = found.get(settlements[index].message.id)
            if loaded is not None:
                step = lifecycle.settle(loaded.record, settlements[index], now)
                if step.record is not loaded.record:
                    steps.append((index, loaded, step))
        made = await session.write([(loaded, step) for _, loaded, step in steps], now)
        ended: list[Message] = []
        again: list[int] = []
        for (index, *_), after in zip(steps, made, strict=True):
            if after is None:
                again.append(index)
                continue
            states[index] = after.state
            ended.append(after)
        await session.bring_back(ended, now, exact=True)
        return again

    async def _close(
        self, settlements: Sequence[Settlement], states: Sequence[State | None]
    ) -> None:
        """Delete a lease's record with its last message."""
        ended = Counter(
            s.token for s, state in zip(settlements, states, strict=True) if state is not None
        )
        for token, number in ended.items():
            if token in self._open:
                self._open[token] -= number
                if self._open[token] <= 0:
                    del self._open[token]
                    await self._session.close_lease(token)
