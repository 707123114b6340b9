"""arq: one process, 100 jobs at once, results not kept, the shortest poll its documentation has."""

import asyncio
import contextlib
import datetime as dt

import side
from arq import create_pool
from arq.connections import RedisSettings

settings = RedisSettings.from_dsn(side.URL)
pool = None


async def handle(_context: dict[str, object], body: str) -> None:
    side.record(body)


class WorkerSettings:
    functions = [handle]
    redis_settings = settings
    max_jobs = 100
    keep_result = 0
    poll_delay = 0.05
    job_timeout = side.LEASE or 300


async def one(body: str, due: int) -> None:
    await pool.enqueue_job(
        "handle", body, _defer_until=dt.datetime.fromtimestamp(due / 1000, dt.UTC)
    )


async def many(items: list[tuple[str, int]]) -> None:
    """No bulk call: many at once on the pool's connections."""
    for start in range(0, len(items), 100):
        await asyncio.gather(*(one(*item) for item in items[start : start + 100]))


@contextlib.asynccontextmanager
async def opened():
    global pool
    pool = await create_pool(settings)
    yield
    await pool.aclose()
