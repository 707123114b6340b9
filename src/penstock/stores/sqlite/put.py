"""PUT: keep what is new, and let `on_conflict` decide about what is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.model.message import NewMessage, OnConflict
from penstock.model.outcome import Receipt
from penstock.model.state import PURGEABLE, State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import (
    NUMBERS,
    STATES,
    json_array,
    plain_values,
    put_rows,
    replace_row,
)
from penstock.stores.sqlite.session import Session

_SCHEDULED = NUMBERS[State.SCHEDULED]


def put(session: Session, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
    """One receipt each."""
    receipts = _keep(session, messages, now)
    if [m for m in messages if m.blocked is not None or m.dead is not None]:
        _end(session, messages, receipts, now)
    return receipts


def _keep(session: Session, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
    kept = _insert(session, messages, now)
    if kept == len(messages):
        _wake(session, messages)
        return [Receipt(m.id, State.SCHEDULED, m.due) for m in messages]
    new = _new_ids(session, messages, kept)
    receipts = []
    for message in messages:
        if message.id in new:
            new.discard(message.id)  # again in this batch: a duplicate
            receipts.append(Receipt(message.id, State.SCHEDULED, message.due))
            session.wake(message.route, message.due)
        else:
            receipts.append(_meet(session, message, now))
    return receipts


def _insert(session: Session, messages: Sequence[NewMessage], now: int) -> int:
    """Insert what is new, in the order of the batch; how many that were."""
    keyed = messages[0].key != messages[0].id
    values = plain_values(messages, now, keyed=keyed)
    if values is None:
        rows = put_rows(messages, now)
        return session.connection.executemany(statements.PUT, rows).rowcount
    width = len(values) // len(messages)
    return session.write_rows(partial(statements.put_plain, keyed=keyed), values, width)


def _end(
    session: Session, messages: Sequence[NewMessage], receipts: list[Receipt], now: int
) -> None:
    """Settle those that came with an ending, in their own transaction: no claim sees them."""
    purgeable = []
    for place, message in enumerate(messages):
        if message.ending is None or receipts[place].duplicate:
            continue
        state, reason = message.ending
        (seq, _, due) = session.execute(statements.HELD, (message.id,)).fetchone()
        session.execute(statements.END, (NUMBERS[state], now, reason, seq))
        receipts[place] = Receipt(message.id, state, due)
        if state in PURGEABLE:
            purgeable.append(seq)
    session.retire(purgeable, now)


def _wake(session: Session, messages: Sequence[NewMessage]) -> None:
    routes = {message.route for message in messages}
    if len(routes) == 1:
        session.wake(routes.pop(), min([message.due for message in messages]))
        return
    for message in messages:
        session.wake(message.route, message.due)


def _new_ids(session: Session, messages: Sequence[NewMessage], kept: int) -> set[str]:
    """Ids this batch brought: their rows are the last ones, numbered without a gap."""
    (last,) = session.execute(statements.LAST_SEQ).fetchone()
    ids = json_array([message.id for message in messages])
    return {
        row[0] for row in session.execute(statements.SEQS_OF_IDS, (ids,)) if row[1] > last - kept
    }


def _meet(session: Session, message: NewMessage, now: int) -> Receipt:
    """The id is known: keep the first, or put the new one in its place while it waits."""
    seq, state, due = session.execute(statements.HELD, (message.id,)).fetchone()
    wins = message.on_conflict is OnConflict.REPLACE or (
        message.on_conflict is OnConflict.EARLIEST and message.due < due
    )
    if not wins or state != _SCHEDULED:
        return Receipt(message.id, STATES[state], due, duplicate=True)
    session.execute(statements.REPLACE, replace_row(message, seq))
    session.note(seq, now, "replaced")
    session.wake(message.route, message.due)
    return Receipt(message.id, State.SCHEDULED, message.due, duplicate=True)
