"""A failed fsync, and what has to happen before the file is used again.

Linux reports a failed fsync once and takes the pages for clean: the next fsync succeeds although
the write-ahead log has a hole on the disk, behind which everything is lost with a power cut. So
nothing is accepted after the first failure, and a mark beside the file stays until the log, as the
next process reads it, has been copied into the database and synced there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from penstock.model.errors import StoreFailed, StoreUnavailable
from penstock.stores.sqlite.address import Address

_ABANDONED: list[sqlite3.Connection] = []

_FSYNC = {
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
}


def is_failed_fsync(exc: BaseException) -> bool:
    return getattr(exc, "sqlite_errorcode", None) in _FSYNC


class FailedFsync(StoreFailed):
    """What was being written when it happened is in the file, or is not."""


def failed_fsync(name: str, exc: BaseException) -> FailedFsync:
    return FailedFsync(
        f"{name}: the disk did not keep what was written (fsync failed: {exc}); nothing more is"
        " accepted: check the disk, then start Penstock again"
    )


def _mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-unsynced")


def mark_unsynced(path: Path) -> None:
    """Leave a mark for the next start; where not even that is possible, there is none."""
    with contextlib.suppress(OSError):
        os.close(os.open(_mark_of(path), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def sync_what_is_marked(connection: sqlite3.Connection, address: Address) -> None:
    """Copy the whole log into the database, synced, if an fsync of it has failed before."""
    if address.path is None or not (mark := _mark_of(address.path)).exists():
        return
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreUnavailable(
            f"{address.name}: an fsync of this file failed, and another process still has it open:"
            " stop every process on it, then start again"
        )
    mark.unlink(missing_ok=True)


def abandon(connection: sqlite3.Connection) -> None:
    """Keep it open until the process ends: the last one that closes copies the log unread."""
    _ABANDONED.append(connection)
