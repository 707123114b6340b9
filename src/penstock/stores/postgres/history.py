"""HISTORY: settled messages, forgotten by moving a horizon and dropping whole partitions.

A partition has the messages settled in one stretch of time: the next so many. Counted like this,
the same partitions serve both limits, the retention time and the number of messages.
"""

from __future__ import annotations

from psycopg import sql

from penstock.stores.postgres.session import Session
from penstock.stores.sql.tx import Tx

WIDTH = 1 << 17
"""Messages of one partition."""
AHEAD = 4
"""Partitions that are made before they are needed."""
_PREFIX = "history_"
_PATIENCE = "SET LOCAL lock_timeout = '500ms'"
"""Wait briefly for the lock: a longer reader of history delays the dropping of a partition."""


def purge(tx: Tx, now: int, limit: int, retention: int, retention_count: int) -> int:
    """Forget the oldest settled ones that are past the time, or more than the count."""
    (horizon,) = tx.one("get_horizon")
    (last,) = tx.one("last_settled")
    over = last - horizon - retention_count
    forgotten = 0
    for number, settled in tx.query("purge_scan", (limit,)):
        if forgotten >= over and now - settled <= retention:
            break
        horizon = number
        forgotten += 1
    if forgotten:
        tx.execute("set_horizon", (horizon, horizon))
        tx.execute("purge_rest")
    return forgotten


def keep_partitions(session: Session) -> None:
    """Create the next partitions; drop those whose messages are all forgotten."""
    (last,) = session.one("last_settled")
    known = {int(name.removeprefix(_PREFIX)) for (name,) in session.query("history_parts")}
    current = last // WIDTH
    (horizon,) = session.one("get_horizon")
    new = [number for number in range(current, current + AHEAD) if number not in known]
    old = [number for number in known if (number + 1) * WIDTH <= horizon + 1]
    if new or old:
        session.connection.execute(_PATIENCE)
    for number in new:
        _make(session, number)
    for number in old:
        session.connection.execute(sql.SQL("DROP TABLE {}").format(_name(number)))


def _make(session: Session, number: int) -> None:
    first = number * WIDTH
    if session.one("is_in_rest", (first, first + WIDTH)) is not None:
        return
    text = "CREATE TABLE IF NOT EXISTS {} PARTITION OF history FOR VALUES FROM ({}) TO ({})"
    bounds = sql.Literal(first), sql.Literal(first + WIDTH)
    session.connection.execute(sql.SQL(text).format(_name(number), *bounds))


def _name(number: int) -> sql.Identifier:
    return sql.Identifier(f"{_PREFIX}{number}")
