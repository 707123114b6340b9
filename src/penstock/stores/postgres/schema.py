"""The schema: versioned migrations, forward only, one process at a time.

A migration only adds: a process of the version before goes on beside it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from penstock.model.errors import ConfigError
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.errors import store_errors
from penstock.stores.postgres.session import STATEMENTS, adapt

_FOLDER = "penstock.stores.postgres"
OLDEST = 130_000
"""PostgreSQL 13."""
SERVES = 1
"""The oldest version whose programs work beside the tables that this one makes."""
_LOCK = 0x50454E53
"""The first half of the advisory lock's key: "PENS"."""


def connect(address: Address) -> psycopg.Connection[Any]:
    """A connection without prepared statements; transactions begin by themselves."""
    with store_errors(address.name):
        connection = psycopg.connect(address.conninfo, prepare_threshold=None)
    adapt(connection.adapters)
    return connection


def migrations() -> list[tuple[int, str]]:
    """(version, text) in order."""
    folder = files(_FOLDER).joinpath("migrations")
    found = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name[:4]), folder.joinpath(name).read_text("utf-8")) for name in found]


SCHEMA_VERSION = migrations()[-1][0]


def use_schema(address: Address) -> sql.Composed:
    """Set the schema for this transaction alone: a pooler would have to preserve a session's
    setting. Temporary tables, which the session may have of the same names, come last.
    """
    schema = sql.Identifier(address.schema)
    return sql.SQL("SET LOCAL search_path TO {}, pg_catalog, pg_temp").format(schema)


def migrate(address: Address) -> tuple[int, int]:
    """Bring the schema up to date, or make it; the versions before and after."""
    with connect(address) as connection, store_errors(address.name):
        if connection.info.server_version < OLDEST:
            raise ConfigError(f"{address.name}: PostgreSQL 13 or newer is needed")
        before = _version(connection, address)
        if before >= SCHEMA_VERSION:  # the usual case asks for no lock and no privilege
            return before, before
        lock = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"
        connection.execute(lock, (_LOCK, address.schema))
        before = _version(connection, address)
        if before == 0:
            name = sql.Identifier(address.schema)
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        connection.execute(use_schema(address))
        for version, text in migrations():
            if version > before:
                connection.execute(text.encode())
                _set(connection, "schema_version", version)
        _set(connection, "schema_serves", SERVES)
        return before, SCHEMA_VERSION


def has_tables(address: Address) -> bool:
    """True if the schema was made."""
    with connect(address) as connection, store_errors(address.name):
        return _version(connection, address) > 0


def _version(connection: psycopg.Connection[Any], address: Address) -> int:
    """The version of the existing tables; 0: there are none."""
    table = f"{address.schema}.meta"
    row = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
    if row is None or row[0] is None:
        return 0
    connection.execute(use_schema(address))
    version = _get(connection, "schema_version")
    if version > SCHEMA_VERSION and _get(connection, "schema_serves") > SCHEMA_VERSION:
        raise ConfigError(
            f"{address.name}: written by a newer Penstock (schema {version}, this one knows"
            f" {SCHEMA_VERSION}); upgrade Penstock or name another schema"
        )
    return version


def _get(connection: psycopg.Connection[Any], name: str) -> int:
    row = connection.execute(STATEMENTS["meta"].encode(), (name,)).fetchone()
    return 0 if row is None else int(row[0])


def _set(connection: psycopg.Connection[Any], name: str, value: int) -> None:
    connection.execute(STATEMENTS["set_meta"].encode(), (name, str(value)))


def register(address: Address, total_partitions: int | None) -> int:
    """Note how the store is used; the number of this opening, which no other has."""
    with connect(address) as connection, store_errors(address.name):
        connection.execute(use_schema(address))
        if total_partitions is not None:
            _set(connection, "total_partitions", total_partitions)
        row = connection.execute(STATEMENTS["next_number"].encode(), ("epoch",)).fetchone()
        if row is None:
            raise ConfigError(f"{address.name}: the table meta takes no rows")
        return int(row[0])


def drop(address: Address) -> None:
    """Remove the schema with everything in it."""
    with connect(address) as connection, store_errors(address.name):
        name = sql.Identifier(address.schema)
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))
