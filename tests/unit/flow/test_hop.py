"""The intake topic: ids take the way through the broker, and nothing is lost beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from penstock.flow.hop import Admitter, Announcer
from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.model.errors import SourceUnavailable, StoreUnavailable
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import DELIVERED, Receipt, Retry, SendOutcome
from penstock.ports.source import Record
from penstock.sdk.asked import draft
from penstock.testing.clock import ManualClock
from tests.unit.flow.rig import Engine


class Tiered:
    """A store whose near future is a list of ids."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.near: list[str] = []
        self.away = 0
        self.admitted = asyncio.Event()

    async def put_unadmitted(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        return await self._engine.store.put(messages, now)

    async def admit(self, ids: Iterable[str], _now: int) -> int:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        self.near += ids
        self.admitted.set()
        return len(self.near)


class Topic:
    """A broker's topic: both ends of it."""

    name = "topic"
    max_batch = 2
    concurrency = 1

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.done_with = 0
        self.broken = False
        self.lost = 0

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if self.broken:
            return [Retry("nobody there", unreachable=True)] * len(batch)
        self.records += [Record(value=m.payload, headers={}, key=m.key) for m in batch]
        return [DELIVERED] * len(batch)

    async def read(self, limit: int) -> Sequence[Record]:
        if self.lost:
            self.lost -= 1
            raise SourceUnavailable("lost")
        await asyncio.sleep(0)
        return self.records[self.done_with : self.done_with + limit]

    async def done(self, records: Sequence[Record]) -> None:
        self.done_with += len(records)

    async def hold(self, records: Sequence[Record]) -> None: ...

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def test_ids_of_what_waits_are_published_and_not_admitted_here(engine: Engine) -> None:
    store, topic = Tiered(engine), Topic()
    intake = Intake(engine.store, Observer(), put=Announcer(store, topic).put)
    outcomes = await intake.schedule([draft(n, id=f"m{n}", delay=60) for n in range(5)])
    assert all(isinstance(outcome, Receipt) for outcome in outcomes)
    assert [record.value for record in topic.records] == [b'{"id":"m%d"}' % n for n in range(5)]
    assert store.near == []
    assert None not in await engine.store.find([f"m{n}" for n in range(5)])


async def test_what_cannot_be_published_is_admitted_at_once(engine: Engine) -> None:
    store, topic = Tiered(engine), Topic()
    topic.broken = True
    intake = Intake(engine.store, Observer(), put=Announcer(store, topic).put)
    await intake.schedule_one(draft(1, id="m1", delay=60))
    assert store.near == ["m1"]
    store.away = 1
    await intake.schedule_one(draft(1, id="m2", delay=60))  # kept all the same: the sweep's to find
    assert store.near == ["m1"]
    assert None not in await engine.store.find(["m2"])


async def test_a_worker_admits_what_the_topic_has_whatever_is_away_meanwhile(
    engine: Engine,
) -> None:
    store, topic = Tiered(engine), Topic()
    topic.records = [
        Record(value=b'{"id":"a"}', headers={}),
        Record(value=b"not ours", headers={}),
        Record(value=b'{"id":"b"}', headers={}),
    ]
    topic.lost, store.away = 1, 2
    clock = ManualClock()
    running = asyncio.ensure_future(Admitter(store, topic, clock).run())
    async with asyncio.timeout(300):
        while not store.admitted.is_set():
            await clock.advance(10_000)
        while topic.done_with < 3:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert store.near == ["a", "b"]
