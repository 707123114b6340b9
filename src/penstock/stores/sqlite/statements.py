"""Every statement that runs on the tables of schema.sql, by name."""

from __future__ import annotations

from functools import cache
from typing import Final

COLUMNS: Final = (
    "seq, id, route, key, payload, content_type, headers, labels, topic, due, expires, priority,"
    " state, version, attempt, attempt_floor, created, claimed, settled, last_error,"
    " cancel_pending, decided"
)
"""A message's columns in the order `rows.to_message` reads them."""
_LEASED_COLUMNS = (
    "seq, id, route, key, payload, content_type, headers, labels, topic, due, expires, priority,"
    " 1, version, attempt + 1, attempt_floor, created, :now, settled, last_error,"
    " cancel_pending, decided"
)
"""The same as `lifecycle.lease` leaves them under a lease taken now."""
_LIGHT = COLUMNS.replace("payload", "NULL").replace("headers", "NULL") + ", lease"
"""The columns of a record without payload and headers, for steps that neither read nor change
them: they may be large."""

_SEQS = "seq IN (SELECT value FROM json_each(:seqs))"

# --- put

PUT: Final = """
INSERT INTO messages (id, route, key, payload, content_type, headers, labels, topic, due, expires,
                      priority, created)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
_PLAIN = ("id", "route", "payload", "due", "priority", "created")
"""What the plainest message is made of; everything else of it is NULL or a default."""


@cache
def put_plain(rows: int, *, keyed: bool) -> str:
    """PUT of so many plain messages at once, with the key of each where it is not the id.

    A value that is not named costs nothing; a NULL that is bound costs more than a text.
    """
    columns = (*_PLAIN, "key") if keyed else _PLAIN
    row = f"({', '.join('?' * len(columns))})"
    values = ", ".join([row] * rows)
    return (
        f"INSERT INTO messages ({', '.join(columns)}) VALUES {values}"  # noqa: S608 - constants
        " ON CONFLICT (id) DO NOTHING"
    )


LAST_SEQ: Final = "SELECT coalesce(max(seq), 0) FROM messages"
SEQS_OF_IDS: Final = "SELECT id, seq FROM messages WHERE id IN (SELECT value FROM json_each(?))"
KNOWN: Final = f"SELECT {_LIGHT} FROM messages WHERE id = ?"  # noqa: S608

# --- claim, extend, reap

_PRIORITIES = range(9, -1, -1)
_HEADS = " UNION ALL ".join(
    "SELECT * FROM (SELECT {what} FROM messages INDEXED BY scheduled"  # noqa: S608 - constants
    f" WHERE state = 0 AND route = :route AND priority = {priority}"
    " {when} ORDER BY due, id LIMIT {limit})"
    for priority in _PRIORITIES
)
# Ten bounded looks at the index: what is pending, here or on other routes, costs nothing.
_DUE = _HEADS.format(what=_LEASED_COLUMNS, when="AND due <= :now", limit=":limit")
DUE: Final = f"SELECT * FROM ({_DUE}) LIMIT :limit"  # noqa: S608 - built from constants only
CHOSEN: Final = f"SELECT {_LEASED_COLUMNS} FROM messages WHERE {_SEQS}"  # noqa: S608
# Read first, then written without RETURNING, which would gather every row a second time.
LEASE: Final = f"""
UPDATE messages SET state = 1, lease = :token, attempt = attempt + 1, claimed = :now WHERE {_SEQS}
"""  # noqa: S608
NEXT_DUE: Final = f"SELECT min(due) FROM ({_HEADS.format(what='due', when='', limit='1')})"  # noqa: S608
IS_PAUSED: Final = "SELECT 1 FROM paused WHERE route = ?"
ADD_LEASE: Final = "INSERT INTO leases (token, route, until, open, seqs) VALUES (?, ?, ?, ?, ?)"
EXTEND: Final = "UPDATE leases SET until = ? WHERE token = ?"
ENDED_LEASES: Final = (
    "SELECT token, seqs FROM leases WHERE until <= ? ORDER BY until, token LIMIT 1"
)
KEEP_REST_OF_LEASE: Final = "UPDATE leases SET seqs = ? WHERE token = ?"
RELEASE_LEASED: Final = """
UPDATE leases SET open = open - ? WHERE token = ? RETURNING open
"""
DROP_LEASE: Final = "DELETE FROM leases WHERE token = ?"
LOST: Final = f"SELECT {_LIGHT} FROM messages WHERE {_SEQS} AND lease = :token"  # noqa: S608

# --- settle

SETTLE_DELIVERED: Final = f"""
UPDATE messages
SET state = 2, settled = :now, lease = NULL, payload = NULL, headers = NULL, cancel_pending = 0,
    decided = coalesce(:decided, decided)
WHERE {_SEQS} AND lease = :token
RETURNING seq
"""  # noqa: S608
LEASE_OF: Final = "SELECT lease, cancel_pending FROM messages WHERE seq = ?"

# --- what a step leaves (penstock.model.lifecycle)

_PROGRESS = """
    due = :due, state = :state, version = :version, attempt = :attempt,
    attempt_floor = :attempt_floor, claimed = :claimed, settled = :settled, lease = :lease,
    last_error = :last_error, cancel_pending = :cancel_pending, decided = :decided
"""
WRITE: Final = f"UPDATE messages SET {_PROGRESS} WHERE seq = :seq"  # noqa: S608
WRITE_CONTENT: Final = f"""
UPDATE messages
SET route = :route, key = :key, payload = :payload, content_type = :content_type,
    headers = :headers, labels = :labels, topic = :topic, expires = :expires,
    priority = :priority, {_PROGRESS}
WHERE seq = :seq
"""  # noqa: S608

# --- amend

BY_ID: Final = f"SELECT {COLUMNS}, lease FROM messages WHERE id = ?"  # noqa: S608
BY_IDS: Final = f"SELECT {COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608

# --- timeline

ADD_EVENT: Final = """
INSERT INTO events (seq, n, at, event, detail, attempt)
VALUES (?, (SELECT coalesce(max(n), 0) + 1 FROM events WHERE seq = ?), ?, ?, ?, ?)
RETURNING n
"""
LAST_EVENT: Final = """
SELECT at, event, detail, attempt FROM events WHERE seq = ? ORDER BY n DESC LIMIT 1
"""
TRIM_EVENTS: Final = "DELETE FROM events WHERE seq = ? AND n <= ?"
EVENTS: Final = "SELECT at, event, detail, attempt FROM events WHERE seq = ? ORDER BY n"

# --- purge

RETIRE: Final = """
INSERT INTO retired (at, count, total, seqs)
VALUES (:at, :count,
        coalesce((SELECT total FROM retired ORDER BY n DESC LIMIT 1), 0) + :count, :seqs)
"""
OLDEST_RETIRED: Final = """
SELECT n, at, count, seqs, (SELECT total FROM retired ORDER BY n DESC LIMIT 1) - total + count
FROM retired ORDER BY n LIMIT 1
"""
KEEP_REST_OF_RETIRED: Final = "UPDATE retired SET count = ?, seqs = ? WHERE n = ?"
DROP_RETIRED: Final = "DELETE FROM retired WHERE n = ?"
# The number of a message that was removed may be given again: `settled` tells the two apart.
RETIRED_THEN: Final = f"SELECT seq FROM messages WHERE {_SEQS} AND settled = :at"  # noqa: S608
REMOVE: Final = f"DELETE FROM messages WHERE {_SEQS}"  # noqa: S608
FORGET_EVENTS: Final = f"DELETE FROM events WHERE {_SEQS}"  # noqa: S608

# --- routes

PAUSE: Final = "INSERT INTO paused (route) VALUES (?) ON CONFLICT DO NOTHING"
RESUME: Final = "DELETE FROM paused WHERE route = ?"
PAUSED: Final = "SELECT route FROM paused"

# --- meta

GET_META: Final = "SELECT value FROM meta WHERE name = ?"
SET_META: Final = """
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
META_NAMES: Final = "SELECT name FROM meta WHERE name > ? AND name < ? ORDER BY name"
DROP_META: Final = "DELETE FROM meta WHERE name = ?"
NEXT_EPOCH: Final = """
INSERT INTO meta (name, value) VALUES ('epoch', '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1
RETURNING CAST(value AS INTEGER)
"""
HOLDS_MESSAGES: Final = "SELECT 1 FROM messages LIMIT 1"

# --- figures

COUNT_SCHEDULED: Final = """
SELECT route, count(*), sum(due <= ?), min(due) FROM messages INDEXED BY scheduled
WHERE state = 0 GROUP BY route
"""
COUNT_LEASED: Final = "SELECT route, sum(open) FROM leases GROUP BY route"
COUNT_SETTLED: Final = """
SELECT state, route, count(*) FROM messages INDEXED BY settled WHERE state >= 2
GROUP BY state, route
"""

FORECAST: Final = """
SELECT route, due < :minutes_end,
       CASE WHEN due < :minutes_end THEN max(due, :now) / 60000 * 60000
            WHEN due < :hours_end THEN due / 3600000 * 3600000
            ELSE :hours_end END,
       count(*)
FROM messages INDEXED BY scheduled WHERE state = 0 GROUP BY 1, 2, 3
"""
DEAD_LETTERS: Final = """
SELECT route, coalesce(last_error, ''), coalesce(settled, due), id
FROM messages INDEXED BY settled WHERE state = 3 AND state >= 2 AND route = :route
ORDER BY due DESC LIMIT :limit
"""

# --- heartbeats

BEAT: Final = """
INSERT INTO heartbeats (id, seen, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, body = excluded.body
"""
HEARTBEATS: Final = "SELECT body FROM heartbeats"
FORGET_HEARTBEATS: Final = "DELETE FROM heartbeats WHERE seen < ?"

# --- search: streams in order of (due, id), merged by the reader

ROUTES_SCHEDULED: Final = """
SELECT min(route) FROM messages INDEXED BY scheduled WHERE state = 0 AND route > ?
"""
ROUTES_SETTLED: Final = """
SELECT min(route) FROM messages INDEXED BY settled
WHERE state = ? AND state >= 2 AND route > ?
"""
LEASED_SEQS: Final = "SELECT seqs FROM leases"
STREAM_SCHEDULED: Final = (
    "SELECT due, id, seq FROM messages INDEXED BY scheduled"
    " WHERE state = 0 AND route = :route AND priority = :priority"
)
STREAM_SETTLED: Final = (
    "SELECT due, id, seq FROM messages INDEXED BY settled"
    " WHERE state = :state AND state >= 2 AND route = :route"
)
STREAM_LEASED: Final = f"SELECT due, id, seq FROM messages WHERE state = 1 AND {_SEQS}"  # noqa: S608
STREAM_KEY: Final = "SELECT due, id, seq FROM messages INDEXED BY keyed WHERE key = :key"
STREAM_ID: Final = "SELECT due, id, seq FROM messages WHERE id = :key AND key IS NULL"
IN_ORDER: Final = " ORDER BY due, id"
BY_SEQS: Final = f"SELECT {COLUMNS} FROM messages WHERE {_SEQS}"  # noqa: S608
SIZES: Final = f"""
SELECT seq, coalesce(length(payload), 0) + coalesce(length(headers), 0) FROM messages WHERE {_SEQS}
"""  # noqa: S608
