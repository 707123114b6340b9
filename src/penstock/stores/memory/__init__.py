"""The reference store: the pure steps of a message over dicts, public as `memory://`.

For users' own tests and for trials: one process, with nothing kept after it ends. Its steps are
plain rather than fast; for a fast store in memory use `sqlite://`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.model.errors import ConfigError
from penstock.ports.store import ScratchStores, Store, StoreDriver
from penstock.stores.memory.store import MemoryStore
from penstock.time.clock import Clock, SystemClock

__all__ = ["DRIVER", "MemoryStore", "open_store"]


async def open_store(
    url: str,
    *,
    total_partitions: int | None = None,  # noqa: ARG001 - for stores that have some
    retention: int,
    retention_count: int,
    bucket_size_sec: int = 60,  # noqa: ARG001 - for stores with a cold tier
    clock: Clock | None = None,
) -> Store:
    """Open a new, empty store.

    `retention` (milliseconds) and `retention_count` limit how long and how many settled messages
    are kept, whichever is reached first.
    """
    _check(url)
    if clock is None:
        clock = SystemClock()
        clock.open()
    store = MemoryStore(clock, retention=retention, retention_count=retention_count)
    return store.as_store()


def in_memory(url: str) -> bool:
    """Whether the store ends with the process that opens it: always."""
    _check(url)
    return True


def nothing_to_read(url: str) -> str | None:
    """Why opening this store to read it would only create an empty one."""
    _check(url)
    return "a store in memory is seen only by the process that made it"


def scratch_url(url: str, mark: str) -> str:
    """The URL of a store for trials: every opening creates another one."""
    del mark
    return url


async def erase(url: str) -> None:
    """Does nothing: a scratch store is gone once it is closed."""
    del url


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(f"store: {url!r}: memory:// takes neither a name nor options")


DRIVER = StoreDriver(
    open_store=open_store,
    nothing_to_read=nothing_to_read,
    in_memory=in_memory,
    scratch=ScratchStores(url=scratch_url, erase=erase),
)
