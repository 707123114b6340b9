"""HEALTH: whether the store can keep something now, and facts of its file."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.model.errors import StoreUnavailable
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.schema import get_meta
from penstock.stores.sqlite.session import Session

WRITE_MS = 5_000
"""A write that worked stands for so long, however often health is asked for."""
PROBE = 8 * 1024
"""Bytes that are written to see whether there is room: more than is free in a page."""
MIN_FREE = 1024 * 1024
"""Bytes: with less on its disk the write-ahead log cannot grow for what is accepted next."""


def read(session: Session) -> str | None:
    return get_meta(session.connection, "schema_version")


def try_write(session: Session) -> str | None:
    """In one transaction, so that nobody ever sees it."""
    session.execute(statements.SET_META, ("probe", "0" * PROBE))
    session.execute(statements.DROP_META, ("probe",))
    return read(session)


def of_file(address: Address) -> dict[str, str]:
    """Where and how large it is; StoreUnavailable when its disk is as good as full."""
    path = (address.path or Path()).absolute()
    disk = os.statvfs(path.parent)
    free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
    if free < MIN_FREE:
        raise StoreUnavailable(
            f"{address.name}: the disk is full: {free:,} bytes are left; free some space",
            retry_after=5.0,
        )
    return {
        "path": str(path),
        "size": str(_size(path)),
        "wal_size": str(_size(Path(f"{path}-wal"))),
        "disk_free": str(free),
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
