"""taskiq on a Redis stream (acknowledged), schedules in Redis, two worker processes."""

import asyncio
import contextlib
import datetime as dt

import side
from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

lease = {"idle_timeout": side.LEASE * 1000} if side.LEASE else {}
broker = RedisStreamBroker(url=side.URL, **lease)
source = ListRedisScheduleSource(side.URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task
async def handle(body: str) -> None:
    side.record(body)


async def one(body: str, due: int) -> None:
    at = dt.datetime.fromtimestamp(due / 1000, dt.UTC)
    await handle.schedule_by_time(source, at, body)


async def many(items: list[tuple[str, int]]) -> None:
    """No bulk call: many at once on the source's connections."""
    for start in range(0, len(items), 100):
        await asyncio.gather(*(one(*item) for item in items[start : start + 100]))


@contextlib.asynccontextmanager
async def opened():
    await source.startup()
    yield
    await source.shutdown()
