"""Callers of one kind of client, in a process of their own: each schedules again once answered.

`python -m bench.client_load KIND URL CALLERS SECONDS` prints messages a second.

async, threads              penstock.AsyncClient, penstock.Client
async-apart, threads-apart  the same with gather=False: a request per message
bare-async, bare-threads    aiohttp and http.client alone, posting the same body
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp
import uvloop

import penstock
from bench.run_http import BODY

PAYLOAD = {"user": "user-000042", "text": "x" * 72}
WARM = 0.5


async def tasks(once: Callable[[], Awaitable[object]], callers: int, seconds: float) -> float:
    done, ends = 0, float("inf")

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < ends:
            await once()
            done += 1

    running = [asyncio.create_task(caller()) for _ in range(callers)]
    await asyncio.sleep(WARM)
    before, start = done, time.perf_counter()
    ends = start + seconds
    await asyncio.gather(*running)
    return (done - before) / (time.perf_counter() - start)


def threads(once: Callable[[], object], callers: int, seconds: float) -> float:
    done, ends = [0] * callers, time.perf_counter() + WARM + seconds

    def caller(number: int) -> None:
        while time.perf_counter() < ends:
            once()
            done[number] += 1

    running = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for one in running:
        one.start()
    time.sleep(WARM)
    before, start = sum(done), time.perf_counter()
    for one in running:
        one.join()
    return (sum(done) - before) / (time.perf_counter() - start)


async def with_client(url: str, callers: int, seconds: float, *, gather: bool) -> float:
    async with penstock.AsyncClient(url, gather=gather) as client:
        return await tasks(lambda: client.schedule(PAYLOAD, delay=3600), callers, seconds)


async def with_aiohttp(url: str, callers: int, seconds: float) -> float:
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def once() -> None:
            async with session.post(f"{url}/v1/messages", data=BODY) as answer:
                await answer.read()

        return await tasks(once, callers, seconds)


def with_threads(url: str, callers: int, seconds: float, *, gather: bool) -> float:
    with penstock.Client(url, gather=gather) as client:
        return threads(lambda: client.schedule(PAYLOAD, delay=3600), callers, seconds)


def with_http_client(url: str, callers: int, seconds: float) -> float:
    at, own = urlsplit(url), threading.local()

    def once() -> None:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(at.hostname or "", at.port)
        headers = {"content-type": "application/json"}
        own.connection.request("POST", "/v1/messages", BODY, headers)
        own.connection.getresponse().read()

    return threads(once, callers, seconds)


def main(kind: str, url: str, callers: int, seconds: float) -> float:
    match kind:
        case "async" | "async-apart":
            gather = kind == "async"
            return uvloop.run(with_client(url, callers, seconds, gather=gather))
        case "bare-async":
            return uvloop.run(with_aiohttp(url, callers, seconds))
        case "threads" | "threads-apart":
            return with_threads(url, callers, seconds, gather=kind == "threads")
        case "bare-threads":
            return with_http_client(url, callers, seconds)
    raise SystemExit(f"no such kind: {kind}")


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
