"""Translates SQLite's errors to ours, once, at this edge; and handles a failed fsync.

Linux reports a failed fsync once and takes the pages for clean: the next fsync succeeds although
the write-ahead log has a hole on the disk, behind which everything is lost with a power cut. So
nothing is accepted after the first failure, and a mark beside the file stays until the log, as the
next process reads it, has been copied into the database and synced there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.model.errors import PenstockError, StoreCorrupt, StoreFailed, StoreUnavailable
from penstock.stores.sqlite.address import Address

_PRIMARY = 0xFF
"""An extended result code holds its primary code in the lowest byte."""

_AWAY = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space; nothing was accepted",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: give this user write access",
    sqlite3.SQLITE_BUSY: "another process keeps the file locked: stop it or try again",
    sqlite3.SQLITE_LOCKED: "another connection keeps a table locked: try again",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write: check the disk and its space",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check that its folder exists and is"
    " writable",
    sqlite3.SQLITE_PERM: "access was denied: check the file's permissions",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_INTERRUPT: "the operation was interrupted: try again",
    sqlite3.SQLITE_PROTOCOL: "file locking does not work here: use a local disk",
}
_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT}


def is_locked(exc: sqlite3.Error) -> bool:
    """True if another process has the file locked, for as long as its transaction takes."""
    return (getattr(exc, "sqlite_errorcode", 0) & _PRIMARY) == sqlite3.SQLITE_BUSY


def translate(exc: sqlite3.Error, name: str) -> PenstockError:
    """The error with its cause and remedy."""
    code = getattr(exc, "sqlite_errorcode", None)
    if code is None:  # raised by the module itself: the connection is closed
        return StoreUnavailable(f"{name}: {exc}")
    reason = _AWAY.get(code & _PRIMARY)
    if reason is not None:
        wait = 1.0 if code & _PRIMARY in _TRANSIENT else 5.0
        return StoreUnavailable(f"{name}: {reason} ({exc})", retry_after=wait)
    return StoreCorrupt(
        f"{name}: this is not what Penstock wrote ({exc}); restore a copy, or move the file away"
        " and start anew"
    )


@contextmanager
def store_errors(name: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise translate(exc, name) from exc


# --- a failed fsync ------------------------------------------------------------------------

_ABANDONED: list[sqlite3.Connection] = []

_FSYNC = {
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
}


def is_failed_fsync(exc: BaseException) -> bool:
    return getattr(exc, "sqlite_errorcode", None) in _FSYNC


class FailedFsync(StoreFailed):
    """An fsync failed; the data written at that moment may or may not be in the file."""


def failed_fsync(name: str, exc: BaseException) -> FailedFsync:
    return FailedFsync(
        f"{name}: the disk did not keep what was written (fsync failed: {exc}); nothing more is"
        " accepted: check the disk, then start Penstock again"
    )


def _mark_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-unsynced")


def mark_unsynced(path: Path) -> None:
    """Leave a mark for the next start, if the disk takes one."""
    with suppress(OSError):
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
