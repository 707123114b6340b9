"""kill -9 of a running server, again and again, while a client schedules and a sink receives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.sim.receiver_process import run_receiver
from tests.faults.campaign import Schedulers, WebhookWitness, arrivals, assert_promises
from tests.servers.penstock import run_penstock

KILLS = 6
IN_FLIGHT = 20
CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
[worker]
lease = "3s"
[routes.hook]
sink = "{url}"
semaphore_limit = {in_flight}
backoff = "100ms..500ms"
max_attempts = 1000
"""


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_or_early_when_the_server_is_killed(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    async with run_receiver(tmp_path / "received.ndjson") as receiver:
        config = CONFIG.format(url=receiver.url, in_flight=IN_FLIGHT)
        async with run_penstock(tmp_path, config) as server:
            clients = Schedulers([server.url], chance)
            async with clients.running():
                for _ in range(KILLS):
                    await clients.more(20 + chance.randrange(40))
                    await server.kill()
                    await server.start()
            verdict = await arrivals(WebhookWitness(receiver), clients.acknowledged)
    assert_promises(verdict, duplicates=KILLS * IN_FLIGHT)
