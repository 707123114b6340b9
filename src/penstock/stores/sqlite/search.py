"""SEARCH and FIGURES: read on a connection of their own, away from the path of messages.

There is no index over everything by due (it would cost every put); a page is merged from
streams that are each in order: one a (route, priority) of the scheduled, one a (state, route) of
the settled, the leased from their leases, or the messages of one key.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from penstock.model.query import Cursor, Filter, Page, RouteFigures, StoreFigures
from penstock.model.size import PAGE_BYTES, fitting
from penstock.model.state import State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import NUMBERS, STATES, from_json_array, json_array, to_message

Entry: TypeAlias = tuple[int, str, int]
"""(due, id, seq)"""
Values: TypeAlias = Mapping[str, int | str | None]


def search(connection: sqlite3.Connection, where: Filter, after: Cursor | None, limit: int) -> Page:
    """One page in order of (due, id)."""
    merged = heapq.merge(*_streams(connection, where, _conditions(where, after)))
    entries = list(islice(merged, limit + 1))
    fits = fitting(_sizes(connection, entries[:limit]), PAGE_BYTES)
    more = len(entries) > fits
    del entries[fits:]
    seqs = json_array([seq for _, _, seq in entries])
    rows = connection.execute(statements.BY_SEQS, {"seqs": seqs})
    found = {row[0]: to_message(row) for row in rows}
    items = [found[seq] for _, _, seq in entries]
    return Page(items, Cursor(items[-1].due, items[-1].id) if more and items else None)


def _sizes(connection: sqlite3.Connection, entries: Sequence[Entry]) -> list[int]:
    """Of each entry's message, without reading it: SQLite knows the length of a blob."""
    seqs = json_array([seq for _, _, seq in entries])
    sizes = dict(connection.execute(statements.SIZES, {"seqs": seqs}).fetchall())
    return [sizes[seq] for _, _, seq in entries]


class _Conditions:
    """What is added to every stream, and its values."""

    def __init__(self) -> None:
        self.text = ""
        self.values: dict[str, int | str | None] = {}

    def add(self, text: str, **values: int | str) -> None:
        self.text += f" AND {text}"
        self.values.update(values)


def _conditions(where: Filter, after: Cursor | None) -> _Conditions:
    added = _Conditions()
    if where.due_from is not None:
        added.add("due >= :due_from", due_from=where.due_from)
    if where.due_to is not None:
        added.add("due < :due_to", due_to=where.due_to)
    if where.error is not None:
        added.add("instr(last_error, :error) > 0", error=where.error)
    if after is not None:
        added.add("(due, id) > (:after_due, :after_id)", after_due=after.due, after_id=after.id)
    if where.key is not None:
        added.add("(key = :key OR (key IS NULL AND id = :key))", key=where.key)
        if where.state is not None:
            added.add("state = :state", state=NUMBERS[where.state])
        if where.route is not None:
            added.add("route = :route", route=where.route)
    return added


def _streams(
    connection: sqlite3.Connection, where: Filter, added: _Conditions
) -> Iterator[Iterator[Entry]]:
    def stream(statement: str, values: Values) -> Iterator[Entry]:
        sql = statement + added.text + statements.IN_ORDER
        return connection.execute(sql, {**added.values, **values})

    if where.key is not None:
        yield stream(statements.STREAM_KEY, {})
        yield stream(statements.STREAM_ID, {})
        return
    for state in (where.state,) if where.state is not None else State:
        if state is State.LEASED:
            rows = connection.execute(statements.LEASED_SEQS)
            seqs = [seq for (text,) in rows for seq in from_json_array(text)]
            leased = statements.STREAM_LEASED
            if where.route is not None:
                leased += " AND route = :route"
            yield stream(leased, {"seqs": json_array(seqs), "route": where.route})
            continue
        for route in routes_of(connection, state, where.route):
            if state is State.SCHEDULED:
                for priority in range(10):
                    lane: Values = {"route": route, "priority": priority}
                    yield stream(statements.STREAM_SCHEDULED, lane)
            else:
                number = NUMBERS[state]
                yield stream(statements.STREAM_SETTLED, {"state": number, "route": route})


def routes_of(connection: sqlite3.Connection, state: State, only: str | None) -> Iterator[str]:
    """Routes that hold messages of the state: a step in the index each, however many there are."""
    if only is not None:
        yield only
        return
    route = ""
    while True:
        if state is State.SCHEDULED:
            row = connection.execute(statements.ROUTES_SCHEDULED, (route,)).fetchone()
        else:
            values = (NUMBERS[state], route)
            row = connection.execute(statements.ROUTES_SETTLED, values).fetchone()
        if row[0] is None:
            return
        route = row[0]
        yield route


def figures(connection: sqlite3.Connection, now: int) -> StoreFigures:
    routes: dict[str, RouteFigures] = {}
    states = dict.fromkeys(State, 0)
    for route, number, overdue, next_due in connection.execute(statements.COUNT_SCHEDULED, (now,)):
        routes[route] = RouteFigures(scheduled=number, overdue=overdue, next_due=next_due)
        states[State.SCHEDULED] += number
    for route, number in connection.execute(statements.COUNT_LEASED):
        routes.setdefault(route, RouteFigures()).leased = number
        states[State.LEASED] += number
    for state, route, number in connection.execute(statements.COUNT_SETTLED):
        states[STATES[state]] += number
        if STATES[state] is State.DEAD:
            routes.setdefault(route, RouteFigures()).dead = number
    return StoreFigures(routes=routes, states=states)


def integrity(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the file; empty when nothing is."""
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    return [] if found == ["ok"] else found
