"""Penstock, in the three ways it is used: `embedded`, `library` on a shared store, and `http`.

The handler takes batches, as the documentation advises for small messages.
"""

import asyncio
import contextlib
import datetime as dt
import sys

import side

import penstock

engine: penstock.Engine | penstock.AsyncClient
lease = {"worker_settings": {"lease": f"{side.LEASE}s"}} if side.LEASE else {}


async def handle(messages: list[penstock.Message]) -> None:
    side.record(*(message.payload[1:-1].decode() for message in messages))


def at(due: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(due / 1000, dt.UTC)


async def one(body: str, due: int) -> None:
    await engine.schedule(body, at=at(due))


async def many(items: list[tuple[str, int]]) -> None:
    outcomes = await engine.schedule_many({"payload": body, "at": at(due)} for body, due in items)
    assert all(isinstance(outcome, penstock.Receipt) for outcome in outcomes)


@contextlib.asynccontextmanager
async def opened(how: str = sys.argv[-1]):
    global engine
    if how == "http":
        async with penstock.AsyncClient(side.URL) as engine:
            yield
    else:
        working = {"routes": {"default": handle}, "worker": True, **lease}
        async with penstock.open(side.URL, **(working if how != "library" else {})) as engine:
            yield


async def worker() -> None:
    async with opened("worker"):
        await asyncio.Event().wait()
