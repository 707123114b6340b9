"""TURNS: routes that promise something per key — so many in flight at most, or one by one in order.

For such routes a table says of every key when its next message may be claimed, if at all: a claim
reads that and never the backlog of a busy key. Triggers keep it, and exist only in databases with
such a route. Keys are served by the due of their next message; priority plays no part here.
"""

from __future__ import annotations

from typing import Final

from penstock.model.outcome import Claim
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE, fitting
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.lease import lease_rows
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

_KEY = "coalesce({row}.key, {row}.id)"
_OF_KEY = "m.route = k.route AND coalesce(m.key, m.id) = {key}"
_SIZE = "length(m.payload) + coalesce(length(m.headers), 0)"
_BEGUN = "(m.attempt > m.attempt_floor OR m.decided IS NOT NULL)"

# When the key's next message may be claimed: not while it has its number in flight; in an ordered
# route whatever was begun (a retry, a deferral) comes before everything else of its key.
_NEXT = f"""
CASE WHEN (SELECT count(*) FROM messages m INDEXED BY keys_leased
           WHERE m.state = 1 AND {_OF_KEY}) < k.in_flight
     THEN coalesce(
         (SELECT m.due FROM messages m INDEXED BY keys_begun
          WHERE k.ordered AND m.state = 0 AND {_BEGUN} AND {_OF_KEY} ORDER BY m.due, m.id LIMIT 1),
         (SELECT m.due FROM messages m INDEXED BY keys_waiting
          WHERE m.state = 0 AND {_OF_KEY} ORDER BY m.due, m.id LIMIT 1))
END
"""  # noqa: S608 - constants
_TAKE_TURN = f"""
    INSERT INTO turns (route, key, due)
    SELECT k.route, {{key}}, {_NEXT} FROM keyed_routes k WHERE k.route = {{row}}.route
    ON CONFLICT (route, key) DO UPDATE SET due = excluded.due;
    DELETE FROM turns WHERE route = {{row}}.route AND key = {{key}} AND due IS NULL;
"""  # noqa: S608 - constants
_KEYED = "EXISTS (SELECT 1 FROM keyed_routes WHERE route = {row}.route)"


def _take_turn(row: str) -> str:
    return _TAKE_TURN.format(row=row, key=_KEY.format(row=row))


_MOVED = "(OLD.route <> NEW.route OR OLD.key IS NOT NEW.key)"
SCHEMA: Final = (
    """
    CREATE TABLE IF NOT EXISTS keyed_routes (
        route TEXT PRIMARY KEY, in_flight INTEGER NOT NULL, ordered INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """
    CREATE TABLE IF NOT EXISTS turns (
        route TEXT NOT NULL, key TEXT NOT NULL, due INTEGER, PRIMARY KEY (route, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS turns_due ON turns (route, due, key)",
    """
    CREATE INDEX IF NOT EXISTS keys_waiting
    ON messages (route, coalesce(key, id), due, id) WHERE state = 0""",
    """
    CREATE INDEX IF NOT EXISTS keys_begun ON messages (route, coalesce(key, id), due, id)
    WHERE state = 0 AND (attempt > attempt_floor OR decided IS NOT NULL)""",
    """
    CREATE INDEX IF NOT EXISTS keys_leased
    ON messages (route, coalesce(key, id)) WHERE state = 1""",
    f"""
    CREATE TRIGGER IF NOT EXISTS turn_after_insert AFTER INSERT ON messages
    WHEN {_KEYED.format(row="NEW")} BEGIN {_take_turn("NEW")} END""",
    f"""
    CREATE TRIGGER IF NOT EXISTS turn_after_update AFTER UPDATE ON messages
    WHEN NEW.state < 2 OR OLD.state < 2 BEGIN {_take_turn("NEW")} END""",
    f"""
    CREATE TRIGGER IF NOT EXISTS turn_after_move AFTER UPDATE OF route, key ON messages
    WHEN {_MOVED} BEGIN {_take_turn("OLD")} END""",
    f"""
    CREATE TRIGGER IF NOT EXISTS turn_after_delete AFTER DELETE ON messages
    WHEN OLD.state < 2 BEGIN {_take_turn("OLD")} END""",
)
REGISTERED: Final = "SELECT in_flight, ordered FROM keyed_routes WHERE route = ?"
REGISTER: Final = """
INSERT INTO keyed_routes (route, in_flight, ordered) VALUES (?, ?, ?)
ON CONFLICT (route) DO UPDATE SET in_flight = excluded.in_flight, ordered = excluded.ordered
"""
# Touching one message of every key lets the triggers reckon its turn.
TOUCH: Final = "UPDATE messages SET due = due WHERE route = ? AND state < 2"
DUE_KEYS: Final = """
SELECT key FROM turns WHERE route = ? AND due <= ? ORDER BY due, key LIMIT ?
"""
BEGUN: Final = f"""
SELECT m.seq, {_SIZE}, m.due FROM messages m INDEXED BY keys_begun
WHERE m.state = 0 AND {_BEGUN} AND m.route = :route AND coalesce(m.key, m.id) = :key
ORDER BY m.due, m.id LIMIT 1
"""  # noqa: S608 - constants
WAITING: Final = f"""
SELECT m.seq, {_SIZE} FROM messages m INDEXED BY keys_waiting
WHERE m.state = 0 AND m.route = :route AND coalesce(m.key, m.id) = :key AND m.due <= :now
ORDER BY m.due, m.id LIMIT :room
"""  # noqa: S608 - constants
LEASED_OF_KEY: Final = """
SELECT count(*) FROM messages WHERE state = 1 AND route = ? AND coalesce(key, id) = ?
"""
NEXT_TURN: Final = "SELECT min(due) FROM turns WHERE route = ?"
EXISTS: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'turn_after_delete'"


def prepare(session: Session, route: str, limit: KeyLimit) -> None:
    """Keep turns for the route from now on; messages it holds already are reckoned in."""
    if session.execute(EXISTS).fetchone() is None:
        for statement in SCHEMA:
            session.execute(statement)
    wanted = (limit.in_flight, int(limit.ordered))
    if session.execute(REGISTERED, (route,)).fetchone() != wanted:
        session.execute(REGISTER, (route, *wanted))
        session.execute(TOUCH, (route,))


def claim(
    session: Session,
    route: str,
    limit: int,
    lease: int,
    now: int,
    per_key: KeyLimit,
    max_bytes: int = ANY_SIZE,
) -> Claim:
    """Lease what is due and whose turn it is."""
    if limit <= 0 or session.execute(statements.IS_PAUSED, (route,)).fetchone():
        return Claim(0)
    heads: list[tuple[int, int]] = []
    total = 0
    for (key,) in session.execute(DUE_KEYS, (route, now, limit)).fetchall():
        more = _heads(session, route, key, now, per_key)[: limit - len(heads)]
        heads += more
        total += sum(size for _, size in more)
        if len(heads) == limit or total > max_bytes:
            break
    seqs = [seq for seq, _ in heads[: fitting((size for _, size in heads), max_bytes)]]
    stopped = len(seqs) < len(heads)
    values = {"seqs": json_array(seqs), "now": now}
    rows = session.execute(statements.CHOSEN, values).fetchall() if seqs else []
    token, messages = lease_rows(session, route, rows, lease, now)
    next_due = None
    if len(rows) < limit and not stopped:
        (next_due,) = session.execute(NEXT_TURN, (route,)).fetchone()
    return Claim(token, messages, next_due, stopped)


def _heads(
    session: Session, route: str, key: str, now: int, per_key: KeyLimit
) -> list[tuple[int, int]]:
    """The messages of the key that may go next, and are due, with the size of each."""
    (leased,) = session.execute(LEASED_OF_KEY, (route, key)).fetchone()
    values = {"route": route, "key": key, "now": now, "room": per_key.in_flight - leased}
    if per_key.ordered and (begun := session.execute(BEGUN, values).fetchone()) is not None:
        seq, size, due = begun
        return [(seq, size)] if due <= now else []
    return session.execute(WAITING, values).fetchall()
