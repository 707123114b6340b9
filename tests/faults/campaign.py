"""A fault campaign: clients that schedule without pause, a receiver that records, a checker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import httpx

from penstock.model.times import format_moment
from penstock.sim.receiver_process import ReceiverProcess
from penstock.testing.ledger import Arrival, Verdict, compare

PATIENCE = 300.0
"""Seconds everything acknowledged has to arrive after the last fault."""

ENOUGH = 100
"""Messages without which a campaign proves nothing."""


class Witness(Protocol):
    """Whoever sees what arrives: not Penstock, so that nobody agrees with themselves."""

    async def arrivals(self) -> Sequence[Arrival]:
        """Everything so far, in the order it came."""
        ...


class WebhookWitness:
    """A receiver of webhooks in a process of its own."""

    def __init__(self, receiver: ReceiverProcess) -> None:
        self._receiver = receiver

    async def arrivals(self) -> Sequence[Arrival]:
        return [Arrival(one.id, one.attempt, one.at) for one in self._receiver.received()]


class Schedulers:
    """Schedule until told to stop; note what was acknowledged, with its due time."""

    def __init__(self, urls: Sequence[str], chance: random.Random, *, ahead: int = 2_000) -> None:
        self._urls = urls
        self._chance = chance
        self._ahead = ahead
        self.requested: set[str] = set()
        """Every id sent so far: the store may have it, and the answer may still be on its way."""
        self.acknowledged: dict[str, int] = {}
        self.refused = 0
        """Answers 503: the store was away, and said so."""
        self._stopping = False

    @asynccontextmanager
    async def running(self, number: int = 4) -> AsyncIterator[None]:
        """Run so many of them while the block runs; on leaving, each ends with an answer."""
        async with asyncio.TaskGroup() as group:
            for n in range(number):
                group.create_task(self._run(f"c{n}"))
            try:
                yield
            finally:
                self._stopping = True

    async def more(self, number: int) -> None:
        """Return when so many more are acknowledged than now; however slow the machine is."""
        wanted = len(self.acknowledged) + number
        end = time.monotonic() + PATIENCE
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < end, "nothing is acknowledged any more"
            await asyncio.sleep(0.02)

    async def more_refused(self, number: int) -> None:
        """Return when so many more were answered 503 than now."""
        wanted = self.refused + number
        end = time.monotonic() + PATIENCE
        while self.refused < wanted:
            assert time.monotonic() < end, "the store refuses nothing"
            await asyncio.sleep(0.02)

    async def _run(self, name: str) -> None:
        number = 0
        async with httpx.AsyncClient(timeout=5) as client:
            while not self._stopping:
                number += 1
                await self._schedule(client, f"{name}-{number}")
                await asyncio.sleep(self._chance.random() * 0.01)

    async def _schedule(self, client: httpx.AsyncClient, message_id: str) -> None:
        due = time.time_ns() // 1_000_000 + self._chance.randrange(self._ahead)
        body = {"id": message_id, "route": "hook", "payload": due, "at": format_moment(due)}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:  # the same id until there is an answer: it is one message
            url = self._chance.choice(self._urls)
            self.requested.add(message_id)
            try:
                answer = await client.post(f"{url}/v1/messages", json=body)
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 503:
                assert answer.headers["retry-after"], "a store that is away says when to come back"
                self.refused += 1
                await asyncio.sleep(0.05)
                continue
            assert answer.status_code in {200, 201}, answer.text
            self.acknowledged[message_id] = due
            return
        raise AssertionError(f"{message_id} was never acknowledged")


async def until_more(witness: Witness, than: int) -> None:
    """Return when more have arrived than that: somebody is at work."""
    end = time.monotonic() + PATIENCE
    while len(await witness.arrivals()) <= than:
        assert time.monotonic() < end, "nothing arrives any more"
        await asyncio.sleep(0.02)


async def arrivals(witness: Witness, acknowledged: dict[str, int]) -> Verdict:
    """The verdict once everything has arrived, or nothing more does within our patience."""
    most, end = 0, time.monotonic() + PATIENCE
    while True:
        verdict = compare(acknowledged, await witness.arrivals())
        if verdict.arrived > most:  # a busy machine is no loss
            most, end = verdict.arrived, time.monotonic() + PATIENCE
        if not verdict.lost or time.monotonic() > end:
            return verdict
        await asyncio.sleep(0.2)


def assert_promises(verdict: Verdict, *, duplicates: int) -> None:
    """Lost 0, early 0, and no more repeats than the faults explain, each a higher attempt."""
    print(verdict)
    assert verdict.acknowledged >= ENOUGH
    assert verdict.lost == ()
    assert verdict.early == ()
    assert verdict.same_attempt == ()
    assert len(verdict.duplicates) <= duplicates, verdict.duplicates
