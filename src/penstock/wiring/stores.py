"""The store of the settings: opened, created, or copied empty for trials."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.model.errors import ConfigError, PenstockError
from penstock.ports.store import Store
from penstock.schemes import store_driver
from penstock.settings import Settings
from penstock.settings.secrets import redact
from penstock.time.clock import Clock


async def open_store(settings: Settings, clock: Clock | None = None) -> Store:
    """Open the store of these settings; `clock` is for a store in memory only."""
    driver = store_driver(settings.store)
    worker = settings.worker
    said = "total_partitions" in worker.model_fields_set
    if clock is not None and not driver.in_memory(settings.store):
        raise ConfigError("clock: only a store in memory can be given one", field="store")
    return await driver.open_store(
        settings.store,
        total_partitions=worker.total_partitions if said else None,
        retention=settings.limits.retention,
        retention_count=settings.limits.retention_count,
        bucket_size_sec=worker.bucket_size_sec,
        clock=clock,
    )


def nothing_to_read(settings: Settings) -> str | None:
    """Why only a command that writes may open this store now; None if it may be read."""
    return store_driver(settings.store).nothing_to_read(settings.store)


def check_store_address(settings: Settings) -> None:
    """Raise ConfigError when something is wrong with the store's address; connect to nothing."""
    driver = store_driver(settings.store)
    (driver.check_address or driver.nothing_to_read)(settings.store)


async def init_store(settings: Settings) -> str:
    """Create what the store needs before it is opened; the answer says what was done."""
    init = store_driver(settings.store).init_store
    if init is None:
        return f"nothing to do: {redact(settings.store)} is created on first use"
    return await init(settings.store)


def in_memory(settings: Settings) -> bool:
    """Whether the store ends with the process that opens it."""
    return store_driver(settings.store).in_memory(settings.store)


def on_server(settings: Settings) -> bool:
    """Whether a store that cannot be reached now may become reachable later."""
    return store_driver(settings.store).on_server


@asynccontextmanager
async def scratch_store(settings: Settings) -> AsyncIterator[Settings]:
    """The same settings with a temporary store beside the configured one, erased at the end."""
    scratch = store_driver(settings.store).scratch
    if scratch is None:
        scheme = settings.store.partition(":")[0]
        raise ConfigError(f"store: {scheme}:// has no place to try things in beside the real one")
    url = scratch.url(settings.store, f"bench-{secrets.token_hex(4)}")
    try:
        yield settings.model_copy(update={"store": url})
    except Exception as exc:
        try:
            await scratch.erase(url)
        except PenstockError as left:  # the first failure is the cause of this one, too
            exc.add_note(left.message)
        raise
    except BaseException:  # stopped on purpose: then the leftover is worth an error
        await scratch.erase(url)
        raise
    await scratch.erase(url)
