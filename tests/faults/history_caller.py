"""A caller that changes the same few messages as others do, and writes down each answer.

    python -m tests.faults.history_caller URL NAME SEED

Says `ready`, then for every line it is given (the name of a round): a line of JSON for each call,
and `done`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import msgspec

from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.schemes import store_driver
from tests.faults.histories import Amends, Found, Lost, Put, Settled, Step, Took

AT_ONCE = 2
STEPS = 9
HOUR = 3_600_000
LEASES = (1, 500, HOUR)
"""Milliseconds: one that has run out by the next call, one that may have, one that never does."""
NAMES = 3
PATIENCE = 300.0

_encode = msgspec.json.Encoder().encode


class Caller:
    """Draws one call after another from its own chance."""

    def __init__(self, store: MessageStore, name: str, chance: random.Random) -> None:
        self._store = store
        self._name = name
        self._chance = chance
        self._leases: dict[str, list[tuple[Message, int]]] = {}
        """Id → every lease this process was ever given, stale or not."""
        self._written = 0

    async def play(self, group: str) -> None:
        for number in range(STEPS):
            message_id = f"{group}-{self._chance.randrange(NAMES)}"
            kinds = (self.put, self.claim, self.settle, self.amend, self.find, self.reap)
            weights = (1, 8, 12, 12, 4, 3)
            (kind,) = self._chance.choices(kinds, weights) if number else (self.put,)
            async with asyncio.timeout(PATIENCE):  # a call that never ends says where it waits
                await kind(group, message_id)

    async def put(self, group: str, message_id: str) -> None:
        began, now = time.monotonic_ns(), self._store.clock.now()
        new = NewMessage(id=message_id, route=group, key=message_id, payload=b"first", due=1)
        (receipt,) = await self._store.put([new], now)
        self.write(Put(**self.times(began, now), new=new, receipt=receipt))

    async def claim(self, group: str, message_id: str) -> None:
        del message_id
        began, now = time.monotonic_ns(), self._store.clock.now()
        lease = self._chance.choice(LEASES)
        try:
            claim = await self._store.claim(group, self._chance.randint(1, NAMES), lease, now)
        except StoreUnavailable as exc:
            if "none of them is leased" not in str(exc):  # DynamoDB: so short a lease is half over
                raise
            return
        times = self.times(began, now)
        for message in claim.messages:
            self._leases.setdefault(message.id, []).append((message, claim.token))
            self.write(Took(**times, message=message, token=claim.token, until=now + lease))

    async def settle(self, group: str, message_id: str) -> None:
        held = [name for name in self._leases if name.startswith(f"{group}-")]
        if not held:
            await self.claim(group, message_id)
            return
        message, token = self._chance.choice(self._leases[self._chance.choice(held)][-2:])
        began, now = time.monotonic_ns(), self._store.clock.now()
        (state,) = self._chance.choices((State.SCHEDULED, State.DELIVERED, State.DEAD), (6, 2, 2))
        again = state is State.SCHEDULED
        settlement = Settlement(
            message=message,
            token=token,
            state=state,
            event="retry" if again else state.value,
            due=1 if again else None,
            error=None if state is State.DELIVERED else "why",
        )
        (became,) = await self._store.settle([settlement], now)
        self.write(Settled(**self.times(began, now), settlement=settlement, state=became))

    async def amend(self, group: str, message_id: str) -> None:
        del group
        began, now = time.monotonic_ns(), self._store.clock.now()
        (action,) = self._chance.choices(
            (Action.CANCEL, Action.RESCHEDULE, Action.RELEASE, Action.REDRIVE), (2, 4, 2, 2)
        )
        self._written += 1
        changes = action is Action.RESCHEDULE
        amendment = Amendment(
            action=action,
            id=message_id,
            version=self._chance.choice((None, None, 1, 2)),
            due=self._chance.choice((1, 1, now + HOUR)) if changes else None,
            payload=f"{self._name}-{self._written}".encode() if changes else None,
        )
        (amended,) = await self._store.amend([amendment], now)
        self.write(Amends(**self.times(began, now), amendment=amendment, amended=amended))

    async def find(self, group: str, message_id: str) -> None:
        del group
        began, now = time.monotonic_ns(), self._store.clock.now()
        (message,) = await self._store.find([message_id])
        self.write(Found(**self.times(began, now), id=message_id, message=message))

    async def reap(self, group: str, message_id: str) -> None:
        del group, message_id
        began, now = time.monotonic_ns(), self._store.clock.now()
        reaped = await self._store.reap(now, 10)
        times = self.times(began, now)
        for one in reaped:
            self.write(Lost(**times, reaped=one))

    def times(self, began: int, now: int) -> dict[str, Any]:
        return {"caller": self._name, "start": began, "end": time.monotonic_ns(), "now": now}

    def write(self, step: Step) -> None:
        sys.stdout.buffer.write(_encode(step) + b"\n")


async def main(url: str, name: str, seed: str) -> None:
    store: MessageStore = (
        await store_driver(url).open_store(
            url, total_partitions=4, retention=10**9, retention_count=10**6, bucket_size_sec=60
        )
    ).messages
    chance = random.Random(f"{seed} {name}")
    callers = [Caller(store, f"{name}{n}", chance) for n in range(AT_ONCE)]
    print("ready", flush=True)
    while group := (await asyncio.to_thread(sys.stdin.readline)).strip():
        await asyncio.gather(*(caller.play(group) for caller in callers))
        print("done", flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
