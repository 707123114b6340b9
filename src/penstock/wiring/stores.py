"""The store of these settings: opened, made, or tried beside the real one."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.drivers import STORES, driver_of
from penstock.model.errors import ConfigError, PenstockError
from penstock.ports.store import MessageStore
from penstock.settings import Settings
from penstock.settings.secrets import redact
from penstock.time.clock import Clock


async def open_store(settings: Settings, clock: Clock | None = None) -> MessageStore:
    """Open the store of these settings; one in memory may be given a clock."""
    driver = driver_of(STORES, settings.store, "store")
    worker = settings.worker
    said = "total_partitions" in worker.model_fields_set
    if clock is not None and not in_memory(settings):
        raise ConfigError("clock: only a store in memory can be given one", field="store")
    own = {} if clock is None else {"clock": clock}
    store: MessageStore = await driver.open_store(
        settings.store,
        total_partitions=worker.total_partitions if said else None,
        retention=settings.limits.retention,
        retention_count=settings.limits.retention_count,
        bucket_size_sec=worker.bucket_size_sec,
        **own,
    )
    return store


def nothing_to_read(settings: Settings) -> str | None:
    """Why only a command that writes may open this store now; None: it may be read."""
    driver = driver_of(STORES, settings.store, "store")
    reason: str | None = driver.nothing_to_read(settings.store)
    return reason


async def init_store(settings: Settings) -> str:
    """Make what the store needs before it is opened; says what was done."""
    driver = driver_of(STORES, settings.store, "store")
    init = getattr(driver, "init_store", None)
    if init is None:
        return f"{redact(settings.store)} makes itself when it is first used"
    done: str = await init(settings.store)
    return done


def in_memory(settings: Settings) -> bool:
    """Whether the store ends with the process that opens it."""
    asked = getattr(driver_of(STORES, settings.store, "store"), "in_memory", None)
    return asked is not None and bool(asked(settings.store))


@asynccontextmanager
async def scratch_store(settings: Settings) -> AsyncIterator[Settings]:
    """The same settings with a store of their own beside the configured one, erased in the end."""
    driver = driver_of(STORES, settings.store, "store")
    scratch_url = getattr(driver, "scratch_url", None)
    if scratch_url is None:
        scheme = settings.store.partition(":")[0]
        raise ConfigError(f"store: {scheme}:// has no place to try things in beside the real one")
    url = scratch_url(settings.store, f"bench-{secrets.token_hex(4)}")
    try:
        yield settings.model_copy(update={"store": url})
    except Exception as exc:
        try:
            await driver.erase(url)
        except PenstockError as left:  # what failed first is the reason of this, too
            exc.add_note(left.message)
        raise
    except BaseException:  # stopped on purpose: then what is left behind is the news
        await driver.erase(url)
        raise
    await driver.erase(url)
