"""PUT: keep what is new, and let `on_conflict` decide about what is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.lifecycle import Record, Step
from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt
from penstock.model.state import PURGEABLE, State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import json_array, plain_values, put_rows, to_record
from penstock.stores.sqlite.session import Session


def put(session: Session, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
    """One receipt each."""
    kept = _insert(session, messages, now)
    endings = [m for m in messages if m.blocked is not None or m.dead is not None]
    if kept == len(messages) and not endings:
        _wake(session, messages)
        return [Receipt(m.id, State.SCHEDULED, m.due) for m in messages]
    new = _new_ids(session, messages, kept)
    retired: list[int] = []
    receipts = []
    for message in messages:
        if message.id in new:
            new.discard(message.id)  # again in this batch: a duplicate
            receipts.append(_begin(session, message, now, retired))
        else:
            receipts.append(_meet(session, message, now))
    session.retire(retired, now)
    return receipts


def _insert(session: Session, messages: Sequence[NewMessage], now: int) -> int:
    """`lifecycle.put` of new ids, many a statement, in order; how many of the ids were new."""
    keyed = messages[0].key != messages[0].id
    values = plain_values(messages, now, keyed=keyed)
    if values is None:
        rows = put_rows(messages, now)
        return session.connection.executemany(statements.PUT, rows).rowcount
    width = len(values) // len(messages)
    return session.write_rows(partial(statements.put_plain, keyed=keyed), values, width)


def _begin(session: Session, message: NewMessage, now: int, retired: list[int]) -> Receipt:
    """Settle what came with an ending, in the transaction that put it: no claim sees it."""
    if message.ending is None:
        session.wake(message.route, message.due)
        return Receipt(message.id, State.SCHEDULED, message.due)
    (seq, *_) = session.execute(statements.KNOWN, (message.id,)).fetchone()
    ended = replace(lifecycle.accepted(message, now), ref=seq)
    receipt = Receipt(message.id, ended.state, ended.due)
    session.write(Step(receipt, Record(ended)))
    if ended.state in PURGEABLE:
        retired.append(seq)
    return receipt


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
    record = to_record(session.execute(statements.KNOWN, (message.id,)).fetchone())
    step = lifecycle.put(record, message, now)
    if step.record is not record:
        session.write(step, content=True)
    return step.answer
