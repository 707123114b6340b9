"""A PostgreSQL that crashes under calls on the event loop: each call is told, on either loop.

A server process that dies sends a notice and, where it leaves a call unread, a reset: asyncio tells
the reader of such a socket again and again, uvloop once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest
import uvloop

from penstock.model.errors import StoreUnavailable
from penstock.stores.postgres import lane, open_store
from penstock.stores.postgres.address import parse_address
from penstock.stores.postgres.calls import Calls, NoAnswer
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

ROUNDS = 5
GUARD = 25.0
"""Seconds that no test needs: less than a call that is told nothing waits."""
LOOPS = pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@pytest.fixture(scope="module")
def crashing() -> Iterator[PostgresServer]:
    with PostgresServer(None, "fsync=off") as server:
        yield server


async def answer(calls: Calls) -> int:
    """The process that answers the first call that is answered."""
    while True:
        try:
            ((process,),) = await calls.call(b"SELECT pg_backend_pid()", ())
        except NoAnswer:
            raise
        except (StoreUnavailable, psycopg.Error):
            await asyncio.sleep(0.05)
        else:
            return int(process)


def end_without_reading(process: int) -> None:
    """As an immediate shutdown does, whatever was sent to it since it was stopped."""
    os.kill(process, signal.SIGQUIT)
    os.kill(process, signal.SIGCONT)


def wait_for_end(process: int) -> None:
    """Block this loop, too: nobody notices that the connection was cut."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(process, 0)


@LOOPS
def test_postgres_dies_before_it_reads_a_call_and_its_caller_is_told(
    factory: Callable[[], asyncio.AbstractEventLoop], crashing: PostgresServer
) -> None:
    async def crash() -> None:
        calls = Calls(parse_address(crashing.url), 1)
        for _ in range(ROUNDS):
            process = await answer(calls)
            os.kill(process, signal.SIGSTOP)
            in_doubt = asyncio.Event()
            call = asyncio.create_task(calls.call(b"SELECT 1", (), in_doubt.set))
            await asyncio.sleep(0)
            end_without_reading(process)
            with pytest.raises(psycopg.OperationalError):
                await asyncio.wait_for(call, GUARD)
            assert in_doubt.is_set()
        await answer(calls)
        await calls.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(crash())


@LOOPS
def test_postgres_is_gone_before_a_call_is_sent_and_its_caller_is_told(
    factory: Callable[[], asyncio.AbstractEventLoop], crashing: PostgresServer
) -> None:
    async def crash() -> None:
        calls = Calls(parse_address(crashing.url), 1)
        for _ in range(ROUNDS):
            process = await answer(calls)
            os.kill(process, signal.SIGQUIT)
            wait_for_end(process)
            async with asyncio.timeout(GUARD):
                with pytest.raises(psycopg.OperationalError):
                    await calls.call(b"SELECT 1", ())  # sent before the loop reads anything
        await answer(calls)
        await calls.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(crash())


@LOOPS
def test_postgres_crashes_under_claims_and_every_claim_has_an_answer(
    factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PATIENCE", 10 * lane.PATIENCE)

    async def crash(server: PostgresServer) -> None:
        opened = await open_store(
            server.url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
        )
        store = opened.messages
        assert isinstance(store, PostgresStore)
        answers: dict[str, asyncio.Event] = {f"r{n}": asyncio.Event() for n in range(4)}

        async def claim(route: str) -> None:
            while True:
                with suppress(StoreUnavailable):
                    await store.claim(route, 10, 60_000, store.clock.now())
                    answers[route].set()
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            claims = [group.create_task(claim(route)) for route in answers]
            for _ in range(3):
                await asyncio.gather(*(event.wait() for event in answers.values()))
                await asyncio.to_thread(server.immediate)
                for event in answers.values():
                    event.clear()
                await asyncio.to_thread(server.start)
                async with asyncio.timeout(2 * GUARD):
                    await asyncio.gather(*(event.wait() for event in answers.values()))
            for one in claims:
                one.cancel()
        await store.close()

    with PostgresServer(None, "fsync=off") as server, asyncio.Runner(loop_factory=factory) as run:
        run.run(crash(server))
