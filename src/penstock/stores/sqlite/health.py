"""HEALTH: whether the store can keep something now, and facts of its file."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from penstock.model.errors import StoreUnavailable
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.schema import get_meta
from penstock.stores.sqlite.session import Session

WRITE_MS = 5_000
"""A successful write counts for so long, however often health is read."""
PROBE = 8 * 1024
"""Bytes written to check for space: more than is free in a page."""
MIN_FREE = 1024 * 1024
"""Bytes: with less on its disk the write-ahead log cannot grow for further requests."""
DURABILITY = {
    "full": "every commit is on disk before it is acknowledged (synchronous=full)",
    "normal": "a power cut may lose the last commits, a crash loses none (synchronous=normal)",
}

RESET_BUG_FIXED = (3, 51, 3)
RESET_BUG_FIXED_ALSO = {(3, 50): 7, (3, 44): 6}
"""Older branches that got the fix, and from which release on."""


def has_reset_bug(version: tuple[int, ...]) -> bool:
    """True if this SQLite may corrupt a file while several connections write and copy its log.

    Penstock copies so that it cannot happen (`wal`); another program on the file may not.
    """
    patch = RESET_BUG_FIXED_ALSO.get((version[0], version[1]))
    return version < RESET_BUG_FIXED and (patch is None or version[2] < patch)


def warnings_of(path: Path) -> list[str]:
    """Advice for the operator about a working store."""
    found = []
    if has_reset_bug(sqlite3.sqlite_version_info):
        found.append(
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug: Penstock's own processes avoid"
            " it, but another program that writes to the file while it is in use, such as the"
            " sqlite3 shell, may corrupt it (docs/concepts/sqlite.md)"
        )
    for file in (path, *(Path(f"{path}{ending}") for ending in ("-wal", "-shm"))):
        try:
            mode = file.stat().st_mode
        except OSError:
            continue
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            found.append(
                f"{file} can be read by other users (mode {stat.S_IMODE(mode):04o}), and holds"
                f" payloads and keys: chmod 600 {file}"
            )
    return found


def read(session: Session) -> str | None:
    return get_meta(session.connection, "schema_version")


def try_write(session: Session) -> str | None:
    """Write and remove a row in one transaction, so that it is never visible."""
    session.execute("set_meta", ("probe", "0" * PROBE))
    session.execute("drop_meta", ("probe",))
    return read(session)


def of_file(address: Address) -> dict[str, str]:
    """The file's path and size; StoreUnavailable when its disk is nearly full."""
    path = (address.path or Path()).absolute()
    disk = os.statvfs(path.parent)
    free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
    if free < MIN_FREE:
        raise StoreUnavailable(
            f"{address.name}: the disk is full: {free:,} bytes are left; free some space",
            retry_after=5.0,
        )
    warnings = warnings_of(path)
    return {
        **({"warning": "; ".join(warnings)} if warnings else {}),
        "durability": DURABILITY[address.synchronous],
        "sqlite_version": sqlite3.sqlite_version,
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


def integrity(session: Session) -> list[str]:
    """The damages of the file; empty when there are none."""
    found = [str(row[0]) for row in session.connection.execute("PRAGMA integrity_check")]
    return [] if found == ["ok"] else found
