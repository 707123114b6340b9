"""FLEET: heartbeats in the file, what is coming due, and what died of what."""

from __future__ import annotations

import sqlite3

from penstock.model.fleet import Heartbeat, pack, unpack_all
from penstock.model.forecast import HOUR_MS, HOURS, MINUTE_MS, MINUTES, Forecast
from penstock.model.state import State
from penstock.ports.fleet import DeadLetter
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.search import routes_of
from penstock.stores.sqlite.session import Session


def beat(session: Session, heartbeat: Heartbeat) -> None:
    session.execute(statements.BEAT, (heartbeat.id, heartbeat.seen, pack(heartbeat)))


def heartbeats(session: Session) -> list[Heartbeat]:
    return unpack_all(body for (body,) in session.execute(statements.HEARTBEATS))


def forget(session: Session, before: int) -> None:
    session.execute(statements.FORGET_HEARTBEATS, (before,))


def forecast(connection: sqlite3.Connection, now: int) -> Forecast:
    """One pass over the index of what is scheduled, added up where the data is."""
    found = Forecast(now=now)
    values = {
        "now": now,
        "minutes_end": found.first_minute + MINUTES * MINUTE_MS,
        "hours_end": found.first_hour + HOURS * HOUR_MS,
    }
    for route, by_minute, start, number in connection.execute(statements.FORECAST, values):
        add = found.add if by_minute else found.add_to_hour
        add(route, start, number)
    return found


def dead_letters(connection: sqlite3.Connection, route: str | None, limit: int) -> list[DeadLetter]:
    """The latest of every route, as many of each."""
    routes = list(routes_of(connection, State.DEAD, route))
    letters: list[DeadLetter] = []
    for left, name in zip(range(len(routes), 0, -1), routes, strict=True):
        values = {"route": name, "limit": -(-(limit - len(letters)) // left)}
        letters += map(DeadLetter._make, connection.execute(statements.DEAD_LETTERS, values))
    return letters
