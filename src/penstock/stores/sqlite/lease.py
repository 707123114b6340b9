"""CLAIM, EXTEND, REAP: the life of a lease up to its end by time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import itemgetter

from penstock.model import lifecycle
from penstock.model.message import Message
from penstock.model.outcome import Claim, Reaped
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import Row, from_json_array, json_array, to_message, to_record
from penstock.stores.sqlite.session import Session

_SEQ = itemgetter(0)
_PAYLOAD, _HEADERS = 4, 6
_DUE_AND_ID = itemgetter(9, 1)
_PRIORITY = itemgetter(11)


def claim(
    session: Session, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
) -> Claim:
    """Lease what is due, in order; when nothing is, nothing is written."""
    if limit <= 0 or session.execute(statements.IS_PAUSED, (route,)).fetchone():
        return Claim(0)
    due = session.execute(statements.DUE, {"route": route, "limit": limit, "now": now})
    rows, stopped = _read(due, max_bytes)
    token, messages = lease_rows(session, route, rows, lease, now)
    next_due = None
    if len(rows) < limit and not stopped:
        (next_due,) = session.execute(statements.NEXT_DUE, {"route": route}).fetchone()
    return Claim(token, messages, next_due, stopped)


def _read(due: sqlite3.Cursor, max_bytes: int) -> tuple[list[Row], bool]:
    """Rows up to so many bytes, and whether it ended there. The rest is not read."""
    rows: list[Row] = []
    for row in due:
        max_bytes -= len(row[_PAYLOAD]) + (len(row[_HEADERS]) if row[_HEADERS] else 0)
        if max_bytes < 0 and rows:
            due.close()
            return rows, True
        rows.append(row)
    return rows, False


def lease_rows(
    session: Session, route: str, rows: list[Row], lease: int, now: int
) -> tuple[int, tuple[Message, ...]]:
    """`lifecycle.lease` of the rows that were just read; of none, nothing is written."""
    if not rows:
        return 0, ()
    rows.sort(key=_DUE_AND_ID)
    rows.sort(key=_PRIORITY, reverse=True)  # stable: equal ones stay in their order
    token = session.new_token()
    seqs = json_array(list(map(_SEQ, rows)))
    session.execute(statements.LEASE, {"seqs": seqs, "token": token, "now": now})
    session.execute(statements.ADD_LEASE, (token, route, now + lease, len(rows), seqs))
    return token, tuple(map(to_message, rows))


def extend(session: Session, tokens: Sequence[int], until: int) -> None:
    session.connection.executemany(statements.EXTEND, [(until, token) for token in tokens])


def reap(session: Session, now: int, limit: int) -> list[Reaped]:
    """Lease by lease, oldest end first, until `limit` messages are back."""
    reaped: list[Reaped] = []
    while len(reaped) < limit:
        ended = session.execute(statements.ENDED_LEASES, (now,)).fetchone()
        if ended is None:
            break
        token, text = ended
        seqs = from_json_array(text)
        room = limit - len(reaped)
        back = _lose(session, token, seqs[:room], now)
        session.close_leases(token, len(back))
        reaped += back
        if len(seqs) > room:
            session.execute(statements.KEEP_REST_OF_LEASE, (json_array(seqs[room:]), token))
        else:
            session.execute(statements.DROP_LEASE, (token,))
    return reaped


def _lose(session: Session, token: int, seqs: Sequence[int], now: int) -> list[Reaped]:
    reaped: list[Reaped] = []
    cancelled: list[int] = []
    values = {"seqs": json_array(seqs), "token": token}
    for row in session.execute(statements.LOST, values).fetchall():
        step = lifecycle.lose(to_record(row), token, now)
        if step.answer is None:
            continue
        session.write(step)
        reaped.append(step.answer)
        if step.answer.state is not State.SCHEDULED:
            cancelled.append(row[0])
    session.retire(cancelled, now)
    return reaped
