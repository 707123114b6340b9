"""PostgreSQL's dialect, and a transaction on one of its connections.

Statements are sent in pipeline mode: those without an answer travel with the next one that has one.
No statement is prepared on the server, so that PgBouncer in transaction mode may be in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.numeric import NumericBinaryLoader, NumericLoader
from psycopg.types.string import StrDumperUnknown

from penstock.model.message import NewMessage
from penstock.stores.postgres.floors import ANYWHERE, Floors, Look
from penstock.stores.sql.messages import put_rows
from penstock.stores.sql.statements import Dialect, load
from penstock.stores.sql.tx import RowStream, Tx, Values

_NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")
_FIRST_FETCH = 64
_FETCH_BYTES = 4 * 1024 * 1024
"""Approximate bytes of one answer, once the size of messages is known."""
_ID, _PAYLOAD, _DUE, _PRIORITY = 1, 4, 9, 11
_LOCK_FIRST = {"known": "lock_ids", "records": "lock_ids"}
"""Reads for a change, with the statement that first waits for other writers of the same rows."""


def _placeholders(text: str) -> str:
    return _NAMED.sub(r"%(\1)s", text.replace("%", "%%").replace("?", "%s"))


def _unnested(types: str) -> str:
    """One array for each column, for any number of rows."""
    arrays = ", ".join(f"CAST(? AS {one}[])" for one in types.split())
    return f"SELECT * FROM unnest({arrays})"  # noqa: S608 - from files


DIALECT: Final = Dialect(
    words={
        "lock": "FOR UPDATE",
        "lock_rooms": "FOR UPDATE OF r",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "join": "JOIN",
        "update_or_fail": "UPDATE",
    },
    macros={
        "each": "(SELECT unnest(CAST(:{0} AS TEXT[])) AS value)".format,
        "each_int": "(SELECT unnest(CAST(:{0} AS BIGINT[])) AS value)".format,
        "index": lambda _: "",
        "contains": "position(CAST(:error AS TEXT) IN {0}) > 0".format,
        "rows": _unnested,
    },
    own=("penstock.stores.postgres", "own.sql"),
    placeholders=_placeholders,
)
STATEMENTS: Final = load(DIALECT)
_TURNS: Final = [f"turns_{number}" for number in range(1, 7)]


@cache
def _with_conditions(name: str, where: tuple[str, ...]) -> str:
    return STATEMENTS[name].replace("{where}", " ".join(STATEMENTS[one] for one in where))


class _Text(StrDumperUnknown):
    """PostgreSQL's text holds no NUL: SUB takes its place, which no key, id or name can contain."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\x00", "\x1a") if "\x00" in obj else obj)


class _WholeNumber(NumericLoader):
    """Sums are numeric on the server; all of ours are whole."""

    def load(self, data: Any) -> Any:
        return int(super().load(data))


class _WholeNumberBinary(NumericBinaryLoader):
    def load(self, data: Any) -> Any:
        return int(super().load(data))


def adapt(adapters: AdaptersMap) -> None:
    """Register the types that our connections read and write in their own way."""
    adapters.register_dumper(str, _Text)
    adapters.register_loader("numeric", _WholeNumber)
    adapters.register_loader("numeric", _WholeNumberBinary)


class Session(Tx):
    """One connection, used by one transaction at a time. Tokens are `next_token`'s."""

    def __init__(
        self, connection: psycopg.Connection[Any], tokens: Iterator[int], floors: Floors
    ) -> None:
        super().__init__()
        self.connection = connection
        self._tokens = tokens
        self._floors = floors
        self._cursors = 0
        self.issued: list[int] = []
        """Tokens of the claims in this transaction."""
        self._looks: list[Look] = []
        """The claims of this transaction."""

    def end(self, *, committed: bool) -> None:
        """The transaction is over; whether for good."""
        looks, self._looks = self._looks, []
        for look in looks:
            self._floors.end(look, committed=committed)
        if committed:
            self._floors.lower(self.wakes.items())

    def _run(self, text: str, values: Values = ()) -> psycopg.Cursor[Any]:
        cursor = self.connection.cursor(binary=True)
        return cursor.execute(text, values or None)

    def execute(self, name: str, values: Values = ()) -> None:
        self._run(STATEMENTS[name], values)

    def ask(self, name: str, values: Values) -> psycopg.Cursor[Any]:
        """A statement whose answer is read after the commit."""
        return self._run(STATEMENTS[name], values)

    def many(self, name: str, rows: Sequence[Values]) -> None:
        if rows:
            self.connection.cursor().executemany(STATEMENTS[name], rows)

    def query(self, name: str, values: Values = ()) -> list[Any]:
        if name in _LOCK_FIRST:
            self.execute(_LOCK_FIRST[name], values)
        return self._run(STATEMENTS[name], values).fetchall()

    def one(self, name: str, values: Values = ()) -> Any:
        if name in _LOCK_FIRST:
            self.execute(_LOCK_FIRST[name], values)
        if name == "next_due" and isinstance(values, dict):
            values = {**values, **self._floor_of(values["route"])}
        return self._run(STATEMENTS[name], values).fetchone()

    def _floor_of(self, route: str) -> Mapping[str, Any]:
        """The floor of a claim; the next due is looked up from where the claim began."""
        look = self._looks[-1] if self._looks else None
        return ANYWHERE if look is None or look.route != route else look.values

    def each(self, name: str, rows: Sequence[Values]) -> list[Any]:
        cursors = [self._run(STATEMENTS[name], values) for values in rows]
        return [cursor.fetchone() for cursor in cursors]

    def bulk(self, name: str, values: list[Any], width: int, *, counted: bool = True) -> int:
        del counted
        if not values:
            return 0
        columns = [values[place::width] for place in range(width)]
        return self._run(STATEMENTS[name], columns).rowcount

    def stream(self, name: str, values: Values, where: Sequence[str] = ()) -> RowStream:
        text = _with_conditions(name, tuple(where))
        if name != "due" or not isinstance(values, dict):
            return self._run(text, values)  # rows of a few numbers, as many as requested
        look = self._floors.look(values["route"])
        self._looks.append(look)
        self._cursors += 1
        rows = _Rows(self, f"due_{self._cursors}", text, {**values, **look.values}, look)
        self._floors.looked(look)
        return rows

    def put_new(self, messages: Sequence[NewMessage], now: int) -> set[str] | None:
        # In order of routes and ids: two batches with the same ones do not wait for each other in
        # turn, neither for an id nor for the turns of a keyed route. Of one id the first counts.
        first = {row[0]: row for row in reversed(put_rows(messages, now))}
        rows = sorted(first.values(), key=itemgetter(1, 0))
        columns = [list(column) for column in zip(*rows, strict=True)]
        put = self._run(STATEMENTS["put_all"], columns)
        taken_back = self._run(STATEMENTS["unput"], {"ids": columns[0]})
        new = {row[0] for row in put.fetchall()}
        new.difference_update(row[0] for row in taken_back.fetchall())
        return None if len(new) == len(messages) else new

    def make_turns(self) -> None:
        if self.one("has_turns") is None:
            self.execute("lock_ddl")
            if self.one("has_turns") is None:
                for name in _TURNS:
                    self.execute(name)

    def lock_turns(self, route: str) -> None:
        self.execute("lock_route_turns", (route,))

    def array(self, values: Sequence[int] | Sequence[str]) -> Any:
        return list(values)

    def foreign_version(self) -> object:
        """Always a new value: other processes may have written; the mark in the tables decides."""
        return object()

    def new_token(self) -> int:
        self.issued.append(next(self._tokens))
        return self.issued[-1]


class _Rows:
    """Rows of a claim, fetched as they are needed: payloads behind the limit are not read."""

    def __init__(self, session: Session, name: str, text: str, values: Values, look: Look) -> None:
        self._session = session
        self._name = name
        self._look = look
        session._run(f"DECLARE {name} NO SCROLL CURSOR FOR {text}", values)  # noqa: SLF001 - of this file
        self._first = self._fetch(_FIRST_FETCH)

    def _fetch(self, number: int) -> list[Any]:
        text = f"FETCH FORWARD {number} FROM {self._name}"
        return self._session._run(text).fetchall()  # noqa: SLF001 - of this file

    def __iter__(self) -> Iterator[Any]:
        """Yield rows; a row counts as claimed once the next one is requested or the end is
        reached.
        """
        number, rows = _FIRST_FETCH, self._first
        look = self._look
        while True:
            for row in rows:
                yield row
                look.last[row[_PRIORITY]] = (row[_DUE], row[_ID])
                look.claimed += 1
            if len(rows) < number:
                return
            largest = sum(len(row[_PAYLOAD]) for row in rows) // len(rows) + 1
            number = max(1, min(1_000, _FETCH_BYTES // largest))
            rows = self._fetch(number)

    def close(self) -> None:
        self._session._run(f"CLOSE {self._name}")  # noqa: SLF001 - of this file
