"""The bare limits of SQLite on this machine: the same rows, the same schema, nothing of ours."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop

from penstock.model.message import NewMessage
from penstock.stores.sql.messages import put_rows
from penstock.stores.sqlite import open_store
from penstock.stores.sqlite.schema import CACHE_KIB
from penstock.stores.sqlite.session import STATEMENTS

BATCH = 500
DAY = 86_400_000


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        yield Path(name)


def bare(path: Path) -> sqlite3.Connection:
    """A plain connection to a fresh file with our schema, WAL and synchronous=FULL."""

    async def make() -> None:
        store = await open_store(
            f"sqlite:///{path}", total_partitions=8, retention=DAY, retention_count=1_000_000
        )
        await store.close()

    uvloop.run(make())
    return reopen(path)


def reopen(path: Path) -> sqlite3.Connection:
    """A plain connection with the settings ours has, and nothing in its cache yet."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def executemany(connection: sqlite3.Connection, messages: Sequence[NewMessage]) -> float:
    """Rows a second of a bare executemany in transactions of 500."""
    batches = [list(put_rows(messages[i : i + BATCH], 0)) for i in range(0, len(messages), BATCH)]
    start = time.perf_counter()
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(STATEMENTS["put"], batch)
        connection.execute("COMMIT")
    return len(messages) / (time.perf_counter() - start)


def claim_and_delete(connection: sqlite3.Connection, route: str) -> float:
    """Rows a second of the simplest queue: select 500 that are due, delete them, commit."""
    taken = 0
    start = time.perf_counter()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(
            "SELECT seq, id, payload FROM messages INDEXED BY scheduled"
            " WHERE state = 0 AND route = ? AND priority = 5 AND due <= ?"
            " ORDER BY due, id LIMIT 500",
            (route, 1 << 62),
        ).fetchall()
        connection.executemany("DELETE FROM messages WHERE seq = ?", [row[:1] for row in rows])
        connection.execute("COMMIT")
        if not rows:
            return taken / (time.perf_counter() - start)
        taken += len(rows)
