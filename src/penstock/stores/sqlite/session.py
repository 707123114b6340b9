"""What every operation works on: the connection inside a transaction, and what is told after it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.lifecycle import Step
from penstock.model.message import Event
from penstock.model.state import State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import content_values, event_of, json_array, progress_values

MAX_EVENTS = 200
"""Lines kept of one message's timeline; the oldest go first."""
ROWS = 8
"""Rows that one statement takes: more of them gain nothing, and what is left goes singly."""
_TOKEN_BITS = 32
_WAIT, _GO_ON = "PRAGMA synchronous = full", "PRAGMA synchronous = normal"


class Session:
    """One connection, used by one operation at a time."""

    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.wakes: dict[str, int] = {}
        """Route → the nearest due that this transaction brought."""
        self.rollbacks = 0
        """Transactions that came to nothing: what was remembered of them is wrong."""
        self.counters_written = 0
        """Rows of accounts: a message brings one with it, in the transaction that settles it."""
        self._last_token = epoch << _TOKEN_BITS
        self._waits = True
        self._changes = 0

    def wait_for_disk(self, wait: bool) -> None:
        """Whether commits from now on wait for it, of a session that does at first."""
        if wait != self._waits:
            self._waits = wait
            # Not `execute`, which would find the statement prepared: this one acts as it is.
            self.connection.executescript(_WAIT if wait else _GO_ON)

    def has_changed(self) -> bool:
        """Whether there is a row that was written since this was last asked."""
        before, self._changes = self._changes, self.connection.total_changes
        return self._changes != before

    @property
    def changes(self) -> int:
        """Rows changed so far, without those that come with others."""
        return self.connection.total_changes - self.counters_written

    def wake(self, route: str, due: int) -> None:
        if due < self.wakes.get(route, due + 1):
            self.wakes[route] = due

    def new_token(self) -> int:
        """Never given before, by any process: `epoch` is this session's own."""
        self._last_token += 1
        return self._last_token

    def write_rows(self, statement: Callable[[int], str], values: list[Any], width: int) -> int:
        """Many rows, given value after value, some in a statement: fewer steps for each of them.

        `statement`: that for so many rows. Returns how many were written.
        """
        execute_many = self.connection.executemany
        step = ROWS * width
        whole = len(values) // step * step
        written = 0
        if whole:
            slices = [values[i : i + step] for i in range(0, whole, step)]
            written = execute_many(statement(ROWS), slices).rowcount
        if whole < len(values):
            singles = [values[i : i + width] for i in range(whole, len(values), width)]
            written += execute_many(statement(1), singles).rowcount
        return written

    def close_leases(self, token: int, number: int) -> None:
        """So many messages of the lease are settled; with the last one the lease goes."""
        row = self.execute(statements.RELEASE_LEASED, (number, token)).fetchone()
        if row is not None and row[0] <= 0:
            self.execute(statements.DROP_LEASE, (token,))

    def retire(self, seqs: Sequence[int], at: int) -> None:
        """These are settled for good: purge forgets them when their time has come."""
        if seqs:
            values = {"at": at, "count": len(seqs), "seqs": json_array(seqs)}
            self.execute(statements.RETIRE, values)

    def remove(self, seqs: Sequence[int]) -> None:
        """Keep nothing of these messages; none of them is leased."""
        gone = {"seqs": json_array(seqs)}
        self.execute(statements.REMOVE, gone)
        self.execute(statements.FORGET_EVENTS, gone)

    def write(self, step: Step[Any], *, content: bool = False) -> None:
        """Write the record and the timeline's lines that a step leaves, and wake its route.

        With `content` also payload, headers and the like. The caller closes the lease, and
        retires or removes the message.
        """
        record = step.record
        if record is None:
            return
        values = progress_values(record)
        if content:
            values |= content_values(record.message)
        self.execute(statements.WRITE_CONTENT if content else statements.WRITE, values)
        for line in step.events:
            self._note(record.message.ref, line)
        if record.message.state is State.SCHEDULED:
            self.wake(record.message.route, record.message.due)

    def _note(self, seq: int, line: Event) -> None:
        """Add a line to the message's timeline."""
        values = (seq, seq, line.at, line.event, line.detail, line.attempt)
        (number,) = self.execute(statements.ADD_EVENT, values).fetchone()
        if number > MAX_EVENTS:
            self.execute(statements.TRIM_EVENTS, (seq, number - MAX_EVENTS))

    def last_event(self, seq: int) -> tuple[Event, ...]:
        """The last line of the message's timeline, if there is any."""
        return tuple(map(event_of, self.execute(statements.LAST_EVENT, (seq,))))
