"""The adapters' side of the drive, the same for every peer that is driven from Python.

A body is 100 characters: "id due " and padding. An enqueuer reads one order a line from its
standard input and answers with the seconds that the peer's own calls took; a handler appends
"id due now" to one file, a write a call. Only the standard library: every environment has it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import inspect
import json
import os
import random
import sys
import time

URL = os.environ.get("PEERS_URL", "")
"""Where the server is."""
LEASE = int(os.environ.get("PEERS_LEASE", "0"))
"""Seconds after which what a dead worker held shall come back; 0: as the peer's default is."""
RULES = int(os.environ.get("PEERS_RULES", "0"))
"""Recurring rules to make."""
SIZE = 100
AT_ONCE = 64
"""Callers at once, tasks of one loop; of a library without one so many threads:"""
THREADS = 16

_out = None


def record(*bodies: str) -> None:
    """What every handler does: note which messages came, when they were due, and when it is."""
    global _out
    if _out is None:
        _out = os.open(os.environ["PEERS_OUT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    now = time.time_ns() // 1000
    lines = [f"{body.split(' ', 2)[0]} {body.split(' ', 2)[1]} {now}\n" for body in bodies]
    os.write(_out, "".join(lines).encode())


def body(number: int, due: int) -> str:
    return f"{number} {due} ".ljust(SIZE, "x")


def seconds_until(due: int) -> float:
    return due / 1000 - time.time()


class Orders:
    """Does what it is told with the peer's own `one` and, where the peer has it, `many`."""

    def __init__(self, one, many=None) -> None:
        self._one, self._many = one, many
        self._is_async = inspect.iscoroutinefunction(one)

    async def serve(self) -> None:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            ahead, first, number = order["due"], order["first"], order["number"]
            apart = order.get("apart", 0)  # µs between the moments two messages are due
            moments = [ahead + n * apart // 1000 for n in range(number)]
            items = [(body(first + n, due), due) for n, due in enumerate(moments)]
            start = time.perf_counter()
            await getattr(self, f"_{order['do']}")(items, order)
            items.clear()  # who works in the same process shall not be charged for them
            print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)

    async def _bulk(self, items, _) -> None:
        if self._many is None:
            await self._at_once(items, _)
        elif self._is_async:
            await self._many(items)
        else:
            self._many(items)

    async def _single(self, items, _) -> None:
        if self._is_async:
            for item in items:
                await self._one(*item)
        else:
            for item in items:
                self._one(*item)

    async def _at_once(self, items, _) -> None:
        if not self._is_async:
            with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
                list(threads.map(lambda item: self._one(*item), items))
            return
        following = iter(items)

        async def caller() -> None:
            for item in following:
                await self._one(*item)

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))

    async def _steady(self, items, order) -> None:
        """One every 1/rate seconds, due between near and far from then on."""
        chance = random.Random(1)
        start = time.perf_counter()
        for n in range(len(items)):
            if (wait := start + n / order["rate"] - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            ahead = chance.uniform(order["near"], order["far"])
            due = time.time_ns() // 1_000_000 + int(ahead * 1000)
            said = self._one(body(order["first"] + n, due), due)
            if self._is_async:
                await said


def run(coroutine) -> None:
    """On uvloop, where the environment has it."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)


async def enqueuer(adapter) -> None:
    """Take orders until standard input ends; what the adapter opens is opened in this loop."""
    opened = getattr(adapter, "opened", contextlib.nullcontext)
    async with opened():
        await Orders(adapter.one, getattr(adapter, "many", None)).serve()


def main() -> None:
    """`python side.py ADAPTER enqueue|worker [VARIANT]`; a peer with a worker program has that.

    The adapter is imported, not run: peers name a task after its module.
    """
    adapter = importlib.import_module(sys.argv[1])
    if sys.argv[2] == "enqueue":
        run(enqueuer(adapter))
    elif inspect.iscoroutinefunction(adapter.worker):
        run(adapter.worker())
    else:
        adapter.worker()


if __name__ == "__main__":
    main()
