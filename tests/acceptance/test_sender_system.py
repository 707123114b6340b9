"""Sender 2.0 whole, as `make sender` runs it: its verdict, also over a crash of its broker."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from msgspec.structs import replace

from systems.output import Output
from systems.run import Options, Running
from systems.spec import EXAMPLES, read_spec
from systems.verdict import lines
from systems.verdicts import sender
from tests.acceptance.commands import ROOT

pytestmark = pytest.mark.slow

PATIENCE = 300.0
PROMISES = (
    *("lost", "early", "blocked", "expired", "held by quiet hours", "cap kept"),
    "provider's rate kept",
)


async def the_command_ends_with_its_verdict(broker: str) -> None:
    words = ["-m", "systems", "sender", "--broker", broker, "--for", "5s", "--set", "defer=1s"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    text = out.decode()
    assert process.returncode == 0, text
    rows = text.partition("Verdict of sender\n")[2].splitlines()
    for promise in PROMISES:
        (row,) = [row for row in rows if row.strip().startswith(promise)]
        assert row.endswith("  ok"), text
    assert rows[-1] == "sender: the verdict holds"
    assert "Decisions/s: " in text


async def test_the_sender_on_rabbitmq_ends_with_its_verdict() -> None:
    await the_command_ends_with_its_verdict("rabbitmq")


async def test_the_sender_on_nats_ends_with_its_verdict() -> None:
    await the_command_ends_with_its_verdict("nats")


@asynccontextmanager
async def under_load(example: str) -> AsyncIterator[Running]:
    """The whole system, with a provider that fails every tenth request.

    Seldom enough that none of them fails on all attempts of its route by chance.
    """
    values = {"rate": "200", "failures": "0.1", "defer": "2s", "pace": "400/s"}
    spec = replace(read_spec(example), drain="10m")
    system = Running("sender", spec, Options(EXAMPLES / example, values=values), Output())
    try:
        await system.start()
        yield system
    finally:
        await system.stop_servers()
        system.kill()


async def provider_has(system: Running, accepted: int, failed: int) -> int:
    """Wait until the provider has accepted and failed so many; how many it has accepted."""
    deadline = time.monotonic() + PATIENCE
    async with httpx.AsyncClient(timeout=300) as client:
        while True:
            stats = (await client.get(f"http://{system.words['provider']}/stats")).json()
            if stats["accepted"] >= accepted and stats["failed"] >= failed:
                return int(stats["accepted"])
            assert time.monotonic() < deadline, stats
            await asyncio.sleep(0.05)


async def a_crash_of_the_broker_loses_nothing(example: str, broker: str) -> None:
    async with under_load(example) as system:
        (server,) = [one.own for one in system.servers if one.name == broker]
        assert server is not None
        before = await provider_has(system, accepted=100, failed=20)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await provider_has(system, accepted=before + 300, failed=50)
        await system.stop(sender.drained)
        reports = system.reports()
    assert system.problems == []
    ((maker,), (provider,)) = reports["decisions"], reports["provider"]
    assert maker["totals"]["unknown"] == 0
    assert provider["stats"]["failed"] >= 50
    verdict = sender.verdict(reports)
    assert verdict.holds, "\n".join(lines("sender", verdict))


async def test_a_crash_of_rabbitmq_under_load_loses_nothing() -> None:
    await a_crash_of_the_broker_loses_nothing("sender-rabbitmq", "rabbitmq")


async def test_a_crash_of_nats_under_load_loses_nothing() -> None:
    await a_crash_of_the_broker_loses_nothing("sender-nats", "nats")
