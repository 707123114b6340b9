"""The bare limits of PostgreSQL on this machine: the same rows and schema, nothing of ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from penstock.model.message import NewMessage
from penstock.stores.sql.messages import put_rows

BATCH = 500
COLUMNS = (
    "id, route, key, payload, content_type, headers, labels, topic, due, expires, priority, created"
)
TYPES = ("text",) * 3 + ("bytea",) + ("text",) * 4 + ("bigint",) * 4
UNNEST = ", ".join(f"%s::{kind}[]" for kind in TYPES)
INSERT = f"INSERT INTO penstock.messages ({COLUMNS}) SELECT * FROM unnest({UNNEST})"
DUE = """
    SELECT seq FROM penstock.messages
    WHERE state = 0 AND route = 'default' AND priority = 5 AND due <= %s
    ORDER BY due, id LIMIT 500 FOR UPDATE SKIP LOCKED
"""
TAKE = f"DELETE FROM penstock.messages WHERE seq IN ({DUE}) RETURNING id, payload"
"""Not the job of a queue: a crash after the commit loses what was taken and not sent."""
CLAIM = (
    "UPDATE penstock.messages SET state = 1, lease = 1, attempt = attempt + 1, claimed = 1"
    f" WHERE seq IN ({DUE}) RETURNING seq, id, payload"
)
DELETE = "DELETE FROM penstock.messages WHERE seq = ANY (%s) AND lease = 1"
KEEP = f"""
WITH gone AS ({DELETE} RETURNING *)
INSERT INTO penstock.history (seq, {COLUMNS}, state, version, attempt, attempt_floor, claimed,
                              settled, cancel_pending)
SELECT seq, {COLUMNS.replace("payload", "NULL")}, 2, version, attempt, attempt_floor, claimed, 1, 0
FROM gone
"""


class Bare:
    """One plain connection that commits after every batch."""

    def __init__(self, url: str) -> None:
        self.connection: psycopg.Connection[Any] = psycopg.connect(url)

    def copy(self, messages: Sequence[NewMessage]) -> float:
        """Rows a second of COPY."""
        batches = self._batches(messages)
        start = time.perf_counter()
        for batch in batches:
            command = f"COPY penstock.messages ({COLUMNS}) FROM STDIN"
            with self.connection.cursor().copy(command) as copy:
                for row in batch:
                    copy.write_row(row)
            self.connection.commit()
        return len(messages) / (time.perf_counter() - start)

    def unnest(self, messages: Sequence[NewMessage]) -> float:
        """Rows a second of INSERT … SELECT unnest(…)."""
        batches = [list(map(list, zip(*rows, strict=True))) for rows in self._batches(messages)]
        start = time.perf_counter()
        for batch in batches:
            self.connection.execute(INSERT, batch)
            self.connection.commit()
        return len(messages) / (time.perf_counter() - start)

    def take(self) -> float:
        """Rows a second of a queue that may lose: 500 with SKIP LOCKED, deleted, one commit."""
        taken = 0
        start = time.perf_counter()
        while True:
            rows = self.connection.execute(TAKE, (1 << 62,)).fetchall()
            self.connection.commit()
            if not rows:
                return taken / (time.perf_counter() - start)
            taken += len(rows)

    def drain(self, end: str = DELETE) -> float:
        """Rows a second of the simplest queue that loses nothing.

        500 with SKIP LOCKED are marked as leased, commit; they are deleted, commit. With KEEP a
        row of history takes the place of each.
        """
        taken = 0
        start = time.perf_counter()
        while True:
            rows = self.connection.execute(CLAIM, (1 << 62,), binary=True).fetchall()
            self.connection.commit()
            if not rows:
                return taken / (time.perf_counter() - start)
            self.connection.execute(end, ([row[0] for row in rows],))
            self.connection.commit()
            taken += len(rows)

    def empty(self) -> None:
        """Nothing is left of a measurement before the next."""
        self.connection.execute("TRUNCATE penstock.messages, penstock.events, penstock.leases")
        self.connection.execute("DELETE FROM penstock.history")
        self.connection.commit()
        self.connection.autocommit = True
        self.connection.execute("VACUUM ANALYZE")
        self.connection.execute("CHECKPOINT")
        self.connection.autocommit = False

    def bytes(self) -> int:
        """Of the table of messages with its indexes, as it is packed after a vacuum."""
        self.connection.autocommit = True
        self.connection.execute("VACUUM penstock.messages")
        row = self.connection.execute("SELECT pg_total_relation_size('penstock.messages')")
        found = row.fetchone()
        self.connection.autocommit = False
        return 0 if found is None else int(found[0])

    def _batches(self, messages: Sequence[NewMessage]) -> list[list[Any]]:
        return [list(put_rows(messages[i : i + BATCH], 0)) for i in range(0, len(messages), BATCH)]
