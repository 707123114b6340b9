"""A copy from Redis to PostgreSQL that is killed again and again while both are sending."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import penstock
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisServer

MESSAGES = 6_000
KILLS = 4
Handler: TypeAlias = Callable[[penstock.Message], Awaitable[None]]


@pytest.mark.slow
async def test_a_copy_killed_in_the_middle_goes_on_and_every_message_is_sent_once(
    tmp_path: Path,
) -> None:
    sent: Counter[str] = Counter()
    early: list[str] = []
    all_sent = asyncio.Event()

    def handler(engine: list[penstock.Engine]) -> Handler:
        async def handle(message: penstock.Message) -> None:
            sent[message.id] += 1
            if engine[0].clock.now() < message.due:
                early.append(message.id)
            if len(sent) == MESSAGES:
                all_sent.set()

        return handle

    with RedisServer() as redis, PostgresServer() as postgres:
        here: list[penstock.Engine] = []
        there: list[penstock.Engine] = []
        async with (
            penstock.open(redis.url, routes={"default": handler(here)}, worker=True) as source,
            penstock.open(postgres.url, routes={"default": handler(there)}, worker=True) as target,
        ):
            here.append(source)
            there.append(target)
            await source.schedule_many(
                {"id": f"m{n}", "payload": n, "delay": 4 + 8 * (n % 97) / 97}
                for n in range(MESSAGES)
            )
            for _ in range(KILLS):
                copying = await start(tmp_path, redis.url, postgres.url)
                while not sum(route.scheduled for route in (await target.stats()).routes.values()):
                    if copying.returncode is not None:
                        break
                if copying.returncode is None:
                    copying.kill()
                await copying.wait()
            last = await start(tmp_path, redis.url, postgres.url)
            output, errors = await last.communicate()
            assert last.returncode == 0, errors
            assert b"0 dead" in output
            await all_sent.wait()
    assert set(sent) == {f"m{n}" for n in range(MESSAGES)}
    assert [one for one, number in sent.items() if number > 1] == []
    assert early == []


async def start(folder: Path, source: str, target: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "penstock", "store", "copy", source, target)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)
