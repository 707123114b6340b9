"""Procrastinate: one asynchronous worker, 100 jobs at once, polled every 100 ms besides NOTIFY."""

import contextlib
import datetime as dt

import psycopg
import side
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=side.URL, min_size=4, max_size=20))


@app.task(name="handle")
async def handle(body: str) -> None:
    side.record(body)


def at(due: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(due / 1000, dt.UTC)


async def one(body: str, due: int) -> None:
    await handle.configure(schedule_at=at(due)).defer_async(body=body)


async def many(items: list[tuple[str, int]]) -> None:
    """A call takes one moment for all; a bulk of ours has one."""
    for start in range(0, len(items), 500):
        some = items[start : start + 500]
        task = handle.configure(schedule_at=at(some[0][1]))
        await task.batch_defer_async(*({"body": body} for body, _ in some))


@contextlib.asynccontextmanager
async def opened():
    async with app.open_async():
        # one process at a time makes the tables
        async with await psycopg.AsyncConnection.connect(side.URL) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(1)")
            made = await connection.execute("SELECT to_regclass('procrastinate_jobs')")
            if (await made.fetchone()) == (None,):
                await app.schema_manager.apply_schema_async()
        yield


async def worker() -> None:
    more = {"stalled_worker_timeout": side.LEASE} if side.LEASE else {}
    async with opened():
        await app.run_worker_async(
            concurrency=100, fetch_job_polling_interval=0.1, delete_jobs="always", **more
        )
