"""SETTLE: end leases by what came of the send; a stale token changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.model import lifecycle
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.items import decided_column, expiry, lease_pk, list_key, message_pk
from penstock.stores.dynamodb.put import TRIES
from penstock.stores.dynamodb.session import Session
from penstock.stores.dynamodb.table import Change

_DELIVERED = State.DELIVERED
_GONE = ("b", "cp", "h", "p", "tk")
"""What a delivered message loses."""


class Settling:
    """Ends leases; knows of the ones given out here how much of them is left."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: Counter[int] = Counter()

    def began(self, token: int, number: int) -> None:
        self._open[token] = number

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        states: list[State | None] = [None] * len(settlements)
        places = list(range(len(settlements)))
        while places:  # a second end of one lease comes after the first
            firsts: dict[str, int] = {}
            for place in places:
                firsts.setdefault(settlements[place].message.id, place)
            done = set(firsts.values())
            await self._settle_distinct(settlements, sorted(done), states, now)
            places = [place for place in places if place not in done]
        retired = [
            s.message.id for s, state in zip(settlements, states, strict=True) if state in PURGEABLE
        ]
        await self._session.retire(retired, now)
        await self._close(settlements, states)
        return states

    async def _settle_distinct(
        self,
        settlements: Sequence[Settlement],
        places: Sequence[int],
        states: list[State | None],
        now: int,
    ) -> None:
        quick = [place for place in places if settlements[place].state is _DELIVERED]
        slow = [place for place in places if settlements[place].state is not _DELIVERED]
        if quick:
            changes = [self._delivered(settlements[place], now) for place in quick]
            sent: list[Message] = []
            for place, done in zip(quick, await self._session.table.change(changes), strict=True):
                if done:
                    states[place] = _DELIVERED
                    sent.append(settlements[place].message)
                else:
                    slow.append(place)
            if self._session.keyed:
                await self._session.bring_back(sent, now, exact=True)
        for _ in range(TRIES):
            if not slow:
                return
            slow = await self._slowly(settlements, slow, states, now)

    def _delivered(self, settlement: Settlement, now: int) -> Change:
        """`lifecycle.settle` of a delivered message without reading it: most end so.

        It fails if anything has changed since the claim; `_slowly` then takes the step itself.
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

    async def _slowly(
        self,
        settlements: Sequence[Settlement],
        places: Sequence[int],
        states: list[State | None],
        now: int,
    ) -> list[int]:
        """Read, then write; returns the places of those that somebody changed in between."""
        session = self._session
        found = await session.read([settlements[place].message.id for place in places])
        steps = []
        for place in places:
            held = found.get(settlements[place].message.id)
            if held is not None:
                step = lifecycle.settle(held.record, settlements[place], now)
                if step.record is not held.record:
                    steps.append((place, held, step))
        made = await session.write([(held, step) for _, held, step in steps], now)
        ended: list[Message] = []
        again: list[int] = []
        for (place, *_), after in zip(steps, made, strict=True):
            if after is None:
                again.append(place)
                continue
            states[place] = after.state
            ended.append(after)
        await session.bring_back(ended, now, exact=True)
        return again

    async def _close(
        self, settlements: Sequence[Settlement], states: Sequence[State | None]
    ) -> None:
        """With the last message of a lease, its record goes."""
        ended = Counter(
            s.token for s, state in zip(settlements, states, strict=True) if state is not None
        )
        for token, number in ended.items():
            if token in self._open:
                self._open[token] -= number
                if self._open[token] <= 0:
                    del self._open[token]
                    await self._session.table.delete(lease_pk(token))
