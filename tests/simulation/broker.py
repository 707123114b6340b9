"""A broker that redelivers: what its readers do not finish comes again, to whoever reads next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.errors import SourceUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Retry, SendOutcome
from penstock.ports.source import Record
from tests.simulation.clocks import ServerClock
from tests.simulation.journal import Journal
from tests.simulation.loop import Owner

VISIBLE_AFTER_MS = 3_000
"""A record given out comes again after this, unless it is done or held."""


@dataclass(slots=True)
class Letter:
    number: int
    value: bytes
    visible: int = 0
    done: bool = False


@dataclass(slots=True)
class Broker:
    clock: ServerClock
    journal: Journal
    chance: random.Random
    letters: list[Letter] = field(default_factory=list)
    buried: dict[str, int] = field(default_factory=dict)
    """Dead letters by their id, and how often each came."""
    away: bool = False

    def publish(self, value: bytes) -> str:
        letter = Letter(len(self.letters), value)
        self.letters.append(letter)
        return origin_of(letter)

    def check(self, owner: Owner) -> None:
        if owner.dead:
            raise asyncio.CancelledError
        if self.away:
            raise SourceUnavailable("simulated: broker away")


def origin_of(letter: Letter) -> str:
    return f"letters/{letter.number}"


class SimSource:
    """A Source of one life of a process."""

    name = "sim://letters"

    def __init__(self, broker: Broker, life: str, owner: Owner) -> None:
        self._broker = broker
        self._life = life
        self._owner = owner

    async def read(self, limit: int) -> Sequence[Record]:
        await asyncio.sleep(0.5)
        broker = self._broker
        broker.check(self._owner)
        now = broker.clock.elapsed()
        ready = [one for one in broker.letters if not one.done and one.visible <= now][:limit]
        for letter in ready:
            letter.visible = now + VISIBLE_AFTER_MS
            broker.journal.note(self._life, "reads", origin_of(letter))
        return [
            Record(value=one.value, headers={}, origin=origin_of(one), handle=one) for one in ready
        ]

    async def done(self, records: Sequence[Record]) -> None:
        await asyncio.sleep(0)
        self._broker.check(self._owner)
        for letter in self._letters(records):
            letter.done = True
            self._broker.journal.note(self._life, "done", origin_of(letter))

    async def hold(self, records: Sequence[Record]) -> None:
        await asyncio.sleep(0)
        self._broker.check(self._owner)
        now = self._broker.clock.elapsed()
        for letter in self._letters(records):
            letter.visible = now + VISIBLE_AFTER_MS

    async def check(self) -> None:
        self._broker.check(self._owner)

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _letters(self, records: Sequence[Record]) -> list[Letter]:
        return [record.handle for record in records if isinstance(record.handle, Letter)]


class Grave:
    """The dead letter of a source, which is sometimes busy."""

    name = "sim://grave"
    max_batch = 10
    concurrency = 10

    def __init__(self, broker: Broker, owner: Owner) -> None:
        self._broker = broker
        self._owner = owner

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        await asyncio.sleep(0.01)
        if self._owner.dead:
            raise asyncio.CancelledError
        if self._broker.chance.random() < 0.3:
            return [Retry("busy")] * len(batch)
        for message in batch:
            self._broker.buried[message.id] = self._broker.buried.get(message.id, 0) + 1
        return [DELIVERED] * len(batch)

    async def check(self) -> None:
        """It is there."""

    async def close(self) -> None:
        """There is nothing to let go of."""
