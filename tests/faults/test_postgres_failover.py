"""Two servers on a primary and its standby: the primary is killed and the standby promoted."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.sim.receiver_process import run_receiver
from systems.servers.postgres import PostgresServer
from tests.faults.campaign import Schedulers, WebhookWitness, arrivals, assert_promises
from tests.servers.penstock import run_penstock

IN_FLIGHT = 20
CONFIG = """
store = "postgresql://penstock@{hosts}/penstock?target_session_attrs=read-write"
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
async def test_a_failover_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A standby that confirms each commit, as an operator has it who may lose nothing."""
    async with AsyncExitStack() as stack:
        primary = stack.enter_context(PostgresServer())
        standby = stack.enter_context(PostgresServer(standby_of=primary))
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.sql("SELECT pg_reload_conf()")
        receiver = await stack.enter_async_context(run_receiver(tmp_path / "received.ndjson"))
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        config = CONFIG.format(hosts=hosts, url=receiver.url, in_flight=IN_FLIGHT)
        servers = [
            await stack.enter_async_context(run_penstock(tmp_path, config)) for _ in range(2)
        ]
        clients = Schedulers([server.url for server in servers], random.Random(5))
        async with clients.running():
            await clients.more(80)
            primary.kill()
            await clients.more_refused(1)
            standby.promote()
            await clients.more(80)
        verdict = await arrivals(WebhookWitness(receiver), clients.acknowledged)
        assert standby.sql("SELECT pg_is_in_recovery()") == "f"
    assert_promises(verdict, duplicates=4 * IN_FLIGHT)
