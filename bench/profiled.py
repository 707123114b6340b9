"""A process that does one hot path and nothing else: `python -m bench.profiled PATH URL`.

Says "ready" when all is prepared, begins when a line comes in, and ends when it is done.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

import penstock
from bench.workload import drafts

PUT = 300_000
SINGLES = 20_000
RELEASED = 200_000


async def _go() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def put(url: str) -> None:
    """schedule_many of what was drafted before."""
    async with penstock.open(url) as engine:
        asked = drafts(PUT)
        await _go()
        await engine.schedule_many(asked)


async def single(url: str) -> None:
    """schedule, each awaited before the next."""
    async with penstock.open(url) as engine:
        await _go()
        for n in range(SINGLES):
            await engine.schedule({"n": n}, delay=3600)


async def callers(url: str) -> None:
    """schedule from 64 tasks at once."""
    async with penstock.open(url) as engine:
        numbers = iter(range(3 * SINGLES))

        async def caller() -> None:
            for n in numbers:
                await engine.schedule({"n": n}, delay=3600)

        await _go()
        await asyncio.gather(*(caller() for _ in range(64)))


async def release(url: str) -> None:
    """Claim, a handler that does nothing, settle."""
    async with penstock.open(url) as engine:
        await engine.schedule_many(drafts(RELEASED, delay=0))
    done, finished = 0, asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        if done >= RELEASED:
            finished.set()

    await _go()
    async with penstock.open(url, routes={"default": nothing}, worker=True):
        await finished.wait()


PATHS = {"put": put, "single": single, "callers": callers, "release": release}

if __name__ == "__main__":
    uvloop.run(PATHS[sys.argv[1]](sys.argv[2]))
