"""SQLite's errors → ours: once, at this edge."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.model.errors import PenstockError, StoreCorrupt, StoreUnavailable

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
    """Whether another process holds the file, for as long as its transaction takes."""
    return (getattr(exc, "sqlite_errorcode", 0) & _PRIMARY) == sqlite3.SQLITE_BUSY


def translate(exc: sqlite3.Error, name: str) -> PenstockError:
    """What happened and what to do about it."""
    code = getattr(exc, "sqlite_errorcode", None)
    if code is None:  # raised by the module itself: the connection is closed
        return StoreUnavailable(f"{name}: {exc}")
    told = _AWAY.get(code & _PRIMARY)
    if told is not None:
        wait = 1.0 if code & _PRIMARY in _TRANSIENT else 5.0
        return StoreUnavailable(f"{name}: {told} ({exc})", retry_after=wait)
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
