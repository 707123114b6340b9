"""A message in the caller's own transaction, on any supported kind of connection.

    psycopg 3 (async and sync) · asyncpg · SQLAlchemy sessions and connections (async and sync)
    · any connection whose cursors take %s: Django's, psycopg 2's

Each kind is recognized by the packages of its type and of what that inherits, which are not
imported for it. What the caller's connection makes of its own rows does not matter.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any

from psycopg.rows import tuple_row

from penstock.model.errors import ConfigError, InvalidMessage
from penstock.model.message import NewMessage, OnConflict
from penstock.model.outcome import Receipt
from penstock.stores.sql.messages import STATES, put_rows

_TYPES = (
    *("text",) * 3,
    "bytea",
    *("text",) * 4,
    *("bigint",) * 3,
)
"""Types of the arguments of `put_message`, in order."""
_ANSWER = ("is_new", "held_state", "held_due")
"""The columns of its answer."""


class CallersTransactions:
    """Calls the schema's `put_message` on callers' connections."""

    def __init__(self, schema: str) -> None:
        name = f'"{schema}".put_message'  # a schema's name was checked when the address was read
        self._call = f"SELECT {', '.join(_ANSWER)} FROM {name}"  # noqa: S608 - see above

    async def put_within(self, connection: object, message: NewMessage) -> Receipt:
        if message.on_conflict is not OnConflict.KEEP:
            raise InvalidMessage("on_conflict", "only keep can be part of your transaction")
        *values, _ = put_rows([message], 0)[0]  # the server sets the creation time
        is_new, state, due = await self._row(connection, values)
        return Receipt(message.id, STATES[state], due, duplicate=not is_new)

    async def _row(self, connection: Any, values: Sequence[Any]) -> Sequence[Any]:
        packages = {one.__module__.partition(".")[0] for one in type(connection).__mro__}
        if "asyncpg" in packages:
            row = await self._asyncpg(connection, values)
        elif "sqlalchemy" in packages:
            row = await self._sqlalchemy(connection, values)
        elif "psycopg" in packages:
            row = await self._cursor(connection.cursor(row_factory=tuple_row), values)
        elif hasattr(connection, "cursor"):
            row = await self._cursor(connection.cursor(), values)
        else:
            raise ConfigError(
                "connection: must be of psycopg, asyncpg, SQLAlchemy or Django, not"
                f" {type(connection).__qualname__}"
            )
        return [row[name] for name in _ANSWER] if isinstance(row, Mapping) else tuple(row)

    async def _asyncpg(self, connection: Any, values: Sequence[Any]) -> Any:
        places = ", ".join(f"${n}::{kind}" for n, kind in enumerate(_TYPES, 1))
        return await connection.fetchrow(f"{self._call}({places})", *values)

    async def _sqlalchemy(self, connection: Any, values: Sequence[Any]) -> Any:
        places = ", ".join(f"CAST(:v{n} AS {kind})" for n, kind in enumerate(_TYPES))
        statement = import_module("sqlalchemy").text(f"{self._call}({places})")
        result = connection.execute(statement, {f"v{n}": value for n, value in enumerate(values)})
        return (await result if inspect.isawaitable(result) else result).one()

    async def _cursor(self, cursor: Any, values: Sequence[Any]) -> Any:
        statement = f"{self._call}({', '.join(f'%s::{kind}' for kind in _TYPES)})"
        executed = cursor.execute(statement, values)
        if inspect.isawaitable(executed):
            async with cursor:
                await executed
                return await cursor.fetchone()
        with closing(cursor):
            return cursor.fetchone()
