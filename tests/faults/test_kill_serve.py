"""kill -9 of a running server, again and again, while a client schedules and a sink receives."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import httpx
import pytest

from penstock.sim.receiver_process import ReceiverProcess, run_receiver
from penstock.testing.ledger import Arrival, Verdict, compare
from tests.servers.penstock import PenstockProcess, run_penstock

KILLS = 6
IN_FLIGHT = 20
CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
[worker]
lease = "1s"
[routes.hook]
sink = "{url}"
semaphore_limit = {in_flight}
backoff = "100ms..500ms"
max_attempts = 1000
"""


class Scheduler:
    """Schedules without pause; notes what was acknowledged, with its due time."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self._url = url
        self._chance = chance
        self.acknowledged: dict[str, int] = {}
        self.stopping = False

    async def run(self, name: str) -> None:
        number = 0
        async with httpx.AsyncClient(timeout=5) as client:
            while not self.stopping:
                number += 1
                await self._schedule(client, f"{name}-{number}")
                await asyncio.sleep(self._chance.random() * 0.01)

    async def _schedule(self, client: httpx.AsyncClient, message_id: str) -> None:
        due = time.time_ns() // 1_000_000 + self._chance.randrange(0, 2_000)
        body = {"id": message_id, "route": "hook", "payload": due, "at": _rfc3339(due)}
        while True:  # the same id until there is an answer: it is one message however often
            try:
                answer = await client.post(f"{self._url}/v1/messages", json=body)
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            assert answer.status_code in {200, 201}, answer.text
            self.acknowledged[message_id] = due
            return


def _rfc3339(millis: int) -> str:
    seconds, ms = divmod(millis, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03d}Z"


async def _arrivals(
    receiver: ReceiverProcess, acknowledged: dict[str, int], seconds: float
) -> Verdict:
    """The verdict once everything has arrived, or when there is no more patience."""
    end = time.monotonic() + seconds
    while True:
        found = [Arrival(one.id, one.attempt, one.at) for one in receiver.received()]
        verdict = compare(acknowledged, found)
        if not verdict.lost or time.monotonic() > end:
            return verdict
        await asyncio.sleep(0.2)


async def _kill_again_and_again(server: PenstockProcess, chance: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(0.5 + chance.random())
        await server.kill()
        await server.start()


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_or_early_when_the_server_is_killed(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    async with run_receiver(tmp_path / "received.ndjson") as receiver:
        config = CONFIG.format(url=receiver.url, in_flight=IN_FLIGHT)
        async with run_penstock(tmp_path, config) as server:
            scheduler = Scheduler(server.url, chance)
            async with asyncio.TaskGroup() as group:
                clients = [group.create_task(scheduler.run(f"c{n}")) for n in range(4)]
                await _kill_again_and_again(server, chance)
                scheduler.stopping = True
                await asyncio.gather(*clients)
            verdict = await _arrivals(receiver, scheduler.acknowledged, 60)
    print(verdict)
    assert verdict.acknowledged > 100
    assert verdict.lost == ()
    assert verdict.early == ()
    assert verdict.same_attempt == ()
    assert len(verdict.duplicates) <= KILLS * IN_FLIGHT
