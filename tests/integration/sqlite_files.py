"""Short ways to say things about SQLite files."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from penstock.model.message import NewMessage
from penstock.model.outcome import Claim, Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.sqlite import SqliteStore, open_store

NOW = 1_600_000_000_000
"""Past: nothing is claimed ahead of the machine's own clock, whatever a caller says the time is."""
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""For programs that import what this process imports."""


def new(message_id: str, *, due: int = NOW, payload: bytes = b"{}") -> NewMessage:
    return NewMessage(id=message_id, route="r", key=message_id, payload=payload, due=due)


@asynccontextmanager
async def opened(
    path: Path, options: str = "", *, partitions: int = 8, retention_count: int = 1_000_000
) -> AsyncIterator[SqliteStore]:
    store = (
        await open_store(
            f"sqlite:///{path}{options}",
            total_partitions=partitions,
            retention=86_400_000,
            retention_count=retention_count,
        )
    ).messages
    assert isinstance(store, SqliteStore)
    try:
        yield store
    finally:
        await store.close()


async def deliver(store: MessageStore, claim: Claim) -> list[State | None]:
    return await store.settle(
        [
            Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
            for m in claim.messages
        ],
        NOW,
    )


def execute(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Run a statement on the file from outside."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(sql).fetchall()
        connection.commit()
    finally:
        connection.close()
    return rows


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the file's write lock while the block runs."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield
        holder.communicate()


async def until(happened: Callable[[], bool], patience: float = 300.0) -> None:
    """Return when it has, however slow the machine is."""
    end = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.01)
