"""The embedded default: one SQLite file, written with group commit on the event loop."""

from __future__ import annotations

import asyncio

from penstock.ports.store import ScratchStores, Store, StoreDriver
from penstock.stores.sqlite.address import Address, erase, parse_address, scratch_url
from penstock.stores.sqlite.schema import connect, prepare
from penstock.stores.sqlite.session import Session
from penstock.stores.sqlite.store import SqliteStore
from penstock.time.clock import Clock, SystemClock

__all__ = ["DRIVER", "SqliteStore", "open_store"]


async def open_store(
    url: str,
    *,
    total_partitions: int | None,
    retention: int,
    retention_count: int,
    bucket_size_sec: int = 60,  # noqa: ARG001 - for stores with a cold tier; every driver is given it
    clock: Clock | None = None,
) -> Store:
    """Open or create the database; the caller closes it.

    `retention` (milliseconds) and `retention_count` bound how long and how many settled messages
    stay known, whichever comes first.
    """
    address = parse_address(url)
    if address.path is None:
        session = _open_session(address, total_partitions)
    else:  # in a thread: another process may hold the file
        session = await asyncio.to_thread(_open_session, address, total_partitions)
    if clock is None:
        clock = SystemClock()
        clock.open()
    store = SqliteStore(
        address,
        session,
        clock,
        retention=retention,
        retention_count=retention_count,
    )
    return store.as_store()


def _open_session(address: Address, total_partitions: int | None) -> Session:
    """Connect, make or check the tables; from then on only a thread may wait for a lock."""
    connection = connect(address)
    try:
        epoch = prepare(connection, address, total_partitions)
        if address.writer == "loop":
            connection.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        connection.close()
        raise
    return Session(connection, epoch)


def in_memory(url: str) -> bool:
    """True if the store ends with the process that opens it."""
    return parse_address(url).path is None


def nothing_to_read(url: str) -> str | None:
    """Why a command that only reads would create an empty store here; None: the store exists."""
    path = parse_address(url).path
    if path is None:
        return "a store in memory is seen only by the process that made it"
    return None if path.exists() else f"the store {path.absolute()} does not exist"


DRIVER = StoreDriver(
    open_store=open_store,
    nothing_to_read=nothing_to_read,
    in_memory=in_memory,
    scratch=ScratchStores(url=scratch_url, erase=erase),
)
