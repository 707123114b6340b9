"""Short ways to say things about SQLite files."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.model.message import NewMessage
from penstock.model.outcome import Claim, Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.sqlite import SqliteStore, open_store

NOW = 1_900_000_000_000
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""For programs that import what this process imports."""


def new(message_id: str, *, due: int = NOW, payload: bytes = b"{}") -> NewMessage:
    return NewMessage(id=message_id, route="r", key=message_id, payload=payload, due=due)


@asynccontextmanager
async def opened(
    path: Path, options: str = "", *, partitions: int = 8, retention_count: int = 1_000_000
) -> AsyncIterator[SqliteStore]:
    store = await open_store(
        f"sqlite:///{path}{options}",
        total_partitions=partitions,
        retention=86_400_000,
        retention_count=retention_count,
    )
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
