"""Two servers on one PostgreSQL: kill -9 of either, a crash of PostgreSQL, connections cut."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.sim.receiver_process import run_receiver
from systems.servers.postgres import PostgresServer
from tests.faults.campaign import Schedulers, WebhookWitness, arrivals, assert_promises
from tests.servers.penstock import run_penstock

ROUNDS = 2
IN_FLIGHT = 20
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'"
CONFIG = """
store = "{store}"
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
async def test_postgres_loses_nothing_and_sends_nothing_early_whatever_is_killed(
    tmp_path: Path,
) -> None:
    chance = random.Random(11)
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(PostgresServer())
        receiver = await stack.enter_async_context(run_receiver(tmp_path / "received.ndjson"))
        config = CONFIG.format(store=postgres.url, url=receiver.url, in_flight=IN_FLIGHT)
        servers = [
            await stack.enter_async_context(run_penstock(tmp_path, config)) for _ in range(2)
        ]
        clients = Schedulers([server.url for server in servers], chance)
        async with clients.running():
            for _ in range(ROUNDS):
                for server in servers:
                    await clients.more(20)
                    await server.kill()
                    await server.start()
                await clients.more(20)
                postgres.sql(CUT)
                await clients.more(20)
                postgres.immediate()
                postgres.start()
                await clients.more(20)
                postgres.kill()
                postgres.start()
        verdict = await arrivals(WebhookWitness(receiver), clients.acknowledged)
    assert_promises(verdict, duplicates=ROUNDS * 8 * IN_FLIGHT)
