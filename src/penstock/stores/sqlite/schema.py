"""Open a database: settings of the connection, tables, versions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.model.identity import DEFAULT_PARTITIONS
from penstock.stores.sql.statements import load_schema
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.errors import store_errors, sync_what_is_marked
from penstock.stores.sqlite.session import DIALECT, STATEMENTS

SCHEMA_VERSION = 4
APPLICATION_ID = 0x50454E53  # "PENS"
BUSY_MS = 5_000
"""Milliseconds to wait for another process's transaction (they take a few)."""
CACHE_KIB = 32_768
WAL_LIMIT = 64 * 1024 * 1024
"""A write-ahead log that had to grow past this is cut back when it starts over."""

Migration = Callable[[sqlite3.Connection], None]

MIGRATIONS: dict[int, Migration] = {}
"""From version → the step to the next one; each runs inside one transaction."""


def connect(address: Address) -> sqlite3.Connection:
    """A connection with its settings; transactions are begun and ended by hand."""
    path = ":memory:" if address.path is None else str(address.path)
    with store_errors(address.name):
        if address.path is not None:
            make_private(address.path)
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            connection.execute(f"PRAGMA synchronous = {address.synchronous}")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute("PRAGMA temp_store = memory")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        except BaseException:
            connection.close()
            raise
    return connection


def make_private(path: Path) -> None:
    """Make the file, if it is not there, readable by this user only.

    SQLite gives the files it keeps beside a database the same permissions.
    """
    with contextlib.suppress(OSError):  # it exists, or SQLite will report why it cannot be created
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def prepare(connection: sqlite3.Connection, address: Address, total_partitions: int | None) -> int:
    """Create the tables, or check that they are ours and not newer than this program.

    Returns the number of this opening: no two have the same, which distinguishes their leases.
    """
    with store_errors(address.name):
        if address.path is not None and _journal_mode(connection) != "wal":
            raise StoreUnavailable(
                f"{address.name}: a write-ahead log is not possible here: use a local disk"
            )
        connection.execute("BEGIN IMMEDIATE")
        try:
            _bring_up_to_date(connection, address)
            _check_partitions(connection, address, total_partitions)
            (epoch,) = connection.execute(STATEMENTS["next_number"], ("epoch",)).fetchone()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        sync_what_is_marked(connection, address)
    return int(epoch)


def _journal_mode(connection: sqlite3.Connection) -> str:
    """Switch to a write-ahead log; return the database's mode.

    When another process is just creating the same file SQLite does not wait, whatever its time-out.
    """
    give_up = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = wal").fetchone()
            return str(mode)
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def get_meta(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute(STATEMENTS["meta"], (name,)).fetchone()
    return None if row is None else str(row[0])


def _bring_up_to_date(connection: sqlite3.Connection, address: Address) -> None:
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables == 0:
        _create(connection)
        return
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise ConfigError(f"{address.name}: this is another program's database; name another file")
    version = int(get_meta(connection, "schema_version") or 0)
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"{address.name}: written by a newer Penstock (schema {version}, this one knows"
            f" {SCHEMA_VERSION}); upgrade Penstock or name another file"
        )
    for step in range(version, SCHEMA_VERSION):
        if step not in MIGRATIONS:
            raise ConfigError(
                f"{address.name}: schema {step} is too old to be brought up to date (it was written"
                " before 0.2); name another file"
            )
        MIGRATIONS[step](connection)
        _set_version(connection, step + 1)


def _create(connection: sqlite3.Connection) -> None:
    for statement in load_schema(DIALECT):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _set_version(connection, SCHEMA_VERSION)


def _set_version(connection: sqlite3.Connection, version: int) -> None:
    connection.execute(STATEMENTS["set_meta"], ("schema_version", str(version)))


def _check_partitions(connection: sqlite3.Connection, address: Address, total: int | None) -> None:
    recorded = int(get_meta(connection, "total_partitions") or 0)
    if total is None:
        total = recorded or DEFAULT_PARTITIONS
    if recorded == total:
        return
    if total < recorded and connection.execute(STATEMENTS["holds_messages"]).fetchone():
        raise ConfigError(
            f"{address.name}: worker.total_partitions is {total}, but this store holds messages"
            f" laid out in {recorded}; it may grow, never shrink: set it to {recorded} or more"
        )
    connection.execute(STATEMENTS["set_meta"], ("total_partitions", str(total)))
