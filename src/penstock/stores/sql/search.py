"""SEARCH, FIGURES, FORECAST, HEARTBEATS: read away from the path of messages.

There is no index over everything by due (it would cost every put); a page is merged from
streams that are each in order: one per (route, priority) of the scheduled, one per (state, route)
of the settled, the leased from their leases, or the messages of one key.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

from penstock.model.fleet import Heartbeat, pack, unpack_all
from penstock.model.forecast import HOUR_MS, HOURS, MINUTE_MS, MINUTES, Forecast
from penstock.model.query import Cursor, Filter, Page, RouteFigures, StoreFigures
from penstock.model.size import PAGE_BYTES, fitting
from penstock.model.state import State
from penstock.ports.fleet import DeadLetter
from penstock.stores.sql.messages import NUMBERS, STATES, as_far_as_readable, from_json_array
from penstock.stores.sql.tx import RowStream, Tx

Entry: TypeAlias = tuple[int, str, int]
"""(due, id, seq)"""


def search(tx: Tx, where: Filter, after: Cursor | None, limit: int) -> Page:
    """One page in order of (due, id)."""
    merged = heapq.merge(*_streams(tx, where, _Conditions(where, after, limit + 1)))
    entries: list[Entry] = list(islice(merged, limit + 1))
    fits = fitting(_sizes(tx, entries[:limit]), PAGE_BYTES)
    more = len(entries) > fits
    del entries[fits:]
    seqs = tx.array([seq for _, _, seq in entries])
    found = {row[0]: as_far_as_readable(row) for row in tx.query("by_seqs", {"seqs": seqs})}
    items = [found[seq] for _, _, seq in entries]
    return Page(items, Cursor(items[-1].due, items[-1].id) if more and items else None)


def _sizes(tx: Tx, entries: Sequence[Entry]) -> list[int]:
    """The size of each entry's message, without reading it: the database knows the length of a
    blob.
    """
    sizes = dict(tx.query("sizes", {"seqs": tx.array([seq for _, _, seq in entries])}))
    return [sizes[seq] for _, _, seq in entries]


class _Conditions:
    """The conditions added to every stream, with their values."""

    def __init__(self, where: Filter, after: Cursor | None, limit: int) -> None:
        self.names: list[str] = []
        self.values: dict[str, Any] = {"limit": limit}
        if where.due_from is not None:
            self._add("if_due_from", due_from=where.due_from)
        if where.due_to is not None:
            self._add("if_due_to", due_to=where.due_to)
        if where.error is not None:
            self._add("if_error", error=where.error)
        if after is not None:
            self._add("if_after", after_due=after.due, after_id=after.id)
        if where.key is not None:
            self.values["key"] = where.key
            if where.state is not None:
                self._add("if_state", state=NUMBERS[where.state])
            if where.route is not None:
                self._add("if_route", route=where.route)

    def _add(self, name: str, **values: int | str) -> None:
        self.names.append(name)
        self.values.update(values)


def _streams(tx: Tx, where: Filter, added: _Conditions) -> Iterator[RowStream]:
    def stream(name: str, *more: str, **values: Any) -> RowStream:
        return tx.stream(name, {**added.values, **values}, (*added.names, *more))

    if where.key is not None:
        yield stream("stream_key")
        yield stream("stream_id")
        return
    for state in (where.state,) if where.state is not None else State:
        if state is State.LEASED:
            seqs = [seq for (text,) in tx.query("leased_seqs") for seq in from_json_array(text)]
            more = () if where.route is None else ("if_route",)
            yield stream("stream_leased", *more, seqs=tx.array(seqs), route=where.route)
            continue
        for route in _routes_of(tx, state, where.route):
            if state is State.SCHEDULED:
                for priority in range(10):
                    yield stream("stream_scheduled", route=route, priority=priority)
            else:
                yield stream("stream_settled", state=NUMBERS[state], route=route)


def _routes_of(tx: Tx, state: State, only: str | None) -> Iterator[str]:
    """Routes that hold messages of the state: a step in the index each, however many there are."""
    if only is not None:
        yield only
        return
    route: str | None = ""
    while True:
        if state is State.SCHEDULED:
            (route,) = tx.one("routes_scheduled", (route,))
        else:
            (route,) = tx.one("routes_settled", (NUMBERS[state], route))
        if route is None:
            return
        yield route


def scheduled_routes(tx: Tx) -> list[str]:
    """Every route that holds a scheduled message."""
    return list(_routes_of(tx, State.SCHEDULED, None))


def figures(tx: Tx, now: int) -> StoreFigures:
    routes: dict[str, RouteFigures] = {}
    states = dict.fromkeys(State, 0)
    for route, number, overdue, next_due in tx.query("count_scheduled", (now,)):
        routes[route] = RouteFigures(scheduled=number, overdue=overdue, next_due=next_due)
        states[State.SCHEDULED] += number
    for route, number in tx.query("count_leased"):
        routes.setdefault(route, RouteFigures()).leased = number
        states[State.LEASED] += number
    for state, route, number in tx.query("count_settled"):
        states[STATES[state]] += number
        if STATES[state] is State.DEAD:
            routes.setdefault(route, RouteFigures()).dead = number
    return StoreFigures(routes=routes, states=states)


def forecast(tx: Tx, now: int) -> Forecast:
    """The forecast, summed by the database in one pass over the index of scheduled messages."""
    found = Forecast(now=now)
    values = {
        "now": now,
        "minutes_end": found.first_minute + MINUTES * MINUTE_MS,
        "hours_end": found.first_hour + HOURS * HOUR_MS,
    }
    for route, by_minute, start, number in tx.query("forecast", values):
        add = found.add if by_minute else found.add_to_hour
        add(route, start, number)
    return found


def dead_letters(tx: Tx, route: str | None, limit: int) -> list[DeadLetter]:
    """The latest of every route, as many of each."""
    routes = list(_routes_of(tx, State.DEAD, route))
    letters: list[DeadLetter] = []
    for left, name in zip(range(len(routes), 0, -1), routes, strict=True):
        values = {"route": name, "limit": -(-(limit - len(letters)) // left)}
        letters += map(DeadLetter._make, tx.query("dead_letters", values))
    return letters


def beat(tx: Tx, heartbeat: Heartbeat) -> None:
    tx.execute("beat", (heartbeat.id, heartbeat.seen, pack(heartbeat)))


def heartbeats(tx: Tx) -> list[Heartbeat]:
    return unpack_all(body for (body,) in tx.query("heartbeats"))


def forget_heartbeats(tx: Tx, before: int) -> None:
    tx.execute("forget_heartbeats", (before,))
