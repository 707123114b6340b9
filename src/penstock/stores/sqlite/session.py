"""SQLite's dialect, and a transaction on one of its connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from penstock.model.errors import StoreFailed
from penstock.model.message import NewMessage
from penstock.stores.sql.messages import plain_values, put_rows
from penstock.stores.sql.statements import Dialect, load
from penstock.stores.sql.tx import Tx, Values

_TOKEN_BITS = 32
ROWS = 8
"""Rows per statement: more gain nothing, and the remaining ones go singly."""


def _values(width: int, rows: int) -> str:
    return "VALUES " + ", ".join([f"({', '.join('?' * width)})"] * rows)


def _dialect(rows: int) -> Dialect:
    """The dialect, with so many rows in a statement that takes several."""
    return Dialect(
        words={
            "lock": "",  # a transaction that writes holds the whole file
            "lock_rooms": "",
            "skip_locked": "",
            "join": "CROSS JOIN",  # in this order: the list first
            # The whole transaction is rolled back when anything fails: SQLite then keeps no copy
            # of every page to undo this statement alone.
            "update_or_fail": "UPDATE OR FAIL",
            "serial": "INTEGER PRIMARY KEY",
            "int_key": "INTEGER PRIMARY KEY",
            "blob": "BLOB",
            "by_key": "WITHOUT ROWID",
        },
        macros={
            "each": "json_each(:{0})".format,
            "each_int": "json_each(:{0})".format,
            "index": "INDEXED BY {0}".format,
            "contains": "instr({0}, :error) > 0".format,
            "rows": lambda types: _values(len(types.split()), rows),
        },
        own=("penstock.stores.sqlite", "own.sql"),
    )


DIALECT: Final = _dialect(1)
STATEMENTS: Final = load(DIALECT)
_SEVERAL: Final = load(_dialect(ROWS))
_TURNS: Final = [f"turns_{number}" for number in range(1, 11)]
_WAIT, _GO_ON = "PRAGMA synchronous = full", "PRAGMA synchronous = normal"
_encode = msgspec.json.Encoder().encode


@cache
def _with_conditions(name: str, where: tuple[str, ...]) -> str:
    return STATEMENTS[name].replace("{where}", " ".join(STATEMENTS[one] for one in where))


class Session(Tx):
    """One connection, used by one operation at a time."""

    def __init__(self, connection: sqlite3.Connection, epoch: int = 0) -> None:
        super().__init__()
        self._last_token = epoch << _TOKEN_BITS
        self.connection = connection
        self._execute = connection.execute
        self.uncounted = 0
        """Rows that accompany others: they do not make a transaction long."""
        self.waits = True
        """Whether a commit waits for the disk."""
        self.seen_version: int | None = None
        """The file's version at the last check of its schema."""
        self.foreign_commits = 0
        """Times that another process may have written between two transactions of this one."""

    def execute(self, name: str, values: Values = ()) -> None:
        self._execute(STATEMENTS[name], values)

    def many(self, name: str, rows: Sequence[Values]) -> None:
        self.connection.executemany(STATEMENTS[name], rows)

    def query(self, name: str, values: Values = ()) -> list[Any]:
        return self._execute(STATEMENTS[name], values).fetchall()

    def one(self, name: str, values: Values = ()) -> Any:
        return self._execute(STATEMENTS[name], values).fetchone()

    def each(self, name: str, rows: Sequence[Values]) -> list[Any]:
        text = STATEMENTS[name]
        return [self._execute(text, values).fetchone() for values in rows]

    def stream(self, name: str, values: Values, where: Sequence[str] = ()) -> sqlite3.Cursor:
        return self._execute(_with_conditions(name, tuple(where)), values)

    def bulk(self, name: str, values: list[Any], width: int, *, counted: bool = True) -> int:
        """Some rows in a statement: fewer steps for each of them."""
        step = ROWS * width
        whole = len(values) // step * step
        written = 0
        if whole:
            slices = [values[i : i + step] for i in range(0, whole, step)]
            written = self.connection.executemany(_SEVERAL[name], slices).rowcount
        if whole < len(values):
            singles = [values[i : i + width] for i in range(whole, len(values), width)]
            written += self.connection.executemany(STATEMENTS[name], singles).rowcount
        if not counted:
            self.uncounted += written
        return written

    def put_new(self, messages: Sequence[NewMessage], now: int) -> set[str] | None:
        keyed = messages[0].key != messages[0].id
        values = plain_values(messages, now, keyed=keyed)
        if values is None:
            rows = put_rows(messages, now)
            kept = self.connection.executemany(STATEMENTS["put"], rows).rowcount
        elif keyed:
            kept = self.bulk("put_keyed", values, 7)
        else:
            kept = self.bulk("put_plain", values, 6)
        if kept == len(messages):
            return None
        # The rows that this batch brought are the last ones, numbered without a gap.
        (last,) = self.one("last_seq")
        ids = self.array([message.id for message in messages])
        return {row[0] for row in self.query("ids_after", {"ids": ids, "seq": last - kept})}

    def make_turns(self) -> None:
        if self.one("has_turns") is None:
            for name in _TURNS:
                self.execute(name)

    def array(self, values: Sequence[int] | Sequence[str]) -> str:
        return _encode(values).decode()

    def new_token(self) -> int:
        """The epoch is this session's own."""
        self._last_token += 1
        return self._last_token

    def foreign_version(self) -> int:
        (version,) = self._execute("PRAGMA data_version").fetchone()
        return int(version)

    def wait_for_disk(self, wait: bool) -> None:
        """Set whether commits from now on wait for the disk."""
        self.waits = wait
        # Not `execute`, which would find the statement prepared: this one acts as it is.
        self.connection.executescript(_WAIT if wait else _GO_ON)

    def check_schema(self, name: str, known: int, seen: int) -> None:
        """Check, in a transaction that sees a commit of another process, that this program still
        knows the file's schema: a newer one may have changed the tables meanwhile.
        """
        self.foreign_commits += 1
        (version,) = self.one("meta", ("schema_version",)) or (0,)
        if int(version) > known:
            raise StoreFailed(
                f"{name}: a newer Penstock has changed this file (schema {version}, this one"
                f" knows {known}): upgrade Penstock and start it again"
            )
        self.seen_version = seen
