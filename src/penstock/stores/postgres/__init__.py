"""A store in one schema of a PostgreSQL database, 13 or newer.

`postgresql://` and `postgres://`; see `address.py` for the options of a URL.
"""

from __future__ import annotations

import asyncio

from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.ports.store import ScratchStores, Store, StoreDriver
from penstock.stores.postgres.address import parse_address, with_schema
from penstock.stores.postgres.schema import drop, has_tables, migrate, register
from penstock.stores.postgres.store import PostgresStore
from penstock.time.clock import Clock

__all__ = ["DRIVER", "PostgresStore", "open_store"]


async def open_store(
    url: str,
    *,
    total_partitions: int | None,
    retention: int,
    retention_count: int,
    bucket_size_sec: int = 60,  # noqa: ARG001 - for stores with a cold tier; every driver is given it
    clock: Clock | None = None,
) -> Store:
    """Connect, and create or migrate the tables; the caller closes the store.

    `retention` (milliseconds) and `retention_count` bound how long and how many settled messages
    stay known, whichever comes first. `clock` replaces the server's: it can only be behind it,
    because claims compare every `now` with the server's own time.
    """
    address = parse_address(url)
    await asyncio.to_thread(migrate, address)
    epoch = await asyncio.to_thread(register, address, total_partitions)
    store = PostgresStore(
        address, epoch, clock, retention=retention, retention_count=retention_count
    )
    try:
        await store.start()
    except BaseException:
        await store.close()
        raise
    return store.as_store()


async def init_store(url: str) -> str:
    """Create the schema or migrate it, and describe what was done."""
    address = parse_address(url)
    before, after = await asyncio.to_thread(migrate, address)
    if before == after:
        return f"{address.name} is up to date (schema version {after})"
    done = "made" if before == 0 else f"brought up to date from schema version {before}"
    return f"{address.name}: {done}, schema version {after}"


def nothing_to_read(url: str) -> str | None:
    """Why opening the store to read it would make a schema; a server that is away has one."""
    address = parse_address(url)
    try:
        made = has_tables(address)
    except StoreUnavailable:
        return None
    return None if made else f"{address.name} has no tables of Penstock"


def scratch_url(url: str, mark: str) -> str:
    """The same server and settings; a schema of its own."""
    return with_schema(url, f"{parse_address(url).schema}_{mark}".replace("-", "_")[:48])


async def erase(url: str) -> None:
    """Drop the schema; StoreUnavailable names it when it may stay."""
    address = parse_address(url)
    try:
        await asyncio.to_thread(drop, address)
    except (ConfigError, StoreUnavailable) as exc:
        raise StoreUnavailable(
            f"the schema {address.schema} may be left behind: {exc.message}"
        ) from exc


DRIVER = StoreDriver(
    open_store=open_store,
    nothing_to_read=nothing_to_read,
    check_address=parse_address,
    on_server=True,
    init_store=init_store,
    scratch=ScratchStores(url=scratch_url, erase=erase),
)
