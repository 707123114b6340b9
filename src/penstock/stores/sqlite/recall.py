"""FIND, TIMELINE, PURGE, PAUSE: what is known of messages and routes, and forgetting it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.message import Event, Message
from penstock.model.timeline import lines_of
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import event_of, from_json_array, json_array, to_message, to_record
from penstock.stores.sqlite.session import Session

_ERASE, _AFTER_ERASE = "erase:", "erase;"
"""Begins the name of a fact that a message is to be erased, and what comes after all of these."""


def find(session: Session, ids: Sequence[str]) -> list[Message | None]:
    rows = session.execute(statements.BY_IDS, (json_array(ids),))
    found = {message.id: message for message in map(to_message, rows)}
    return [found.get(message_id) for message_id in ids]


def timeline(session: Session, message_id: str) -> list[Event]:
    """The usual course is read off the message's columns, the rest off its events."""
    row = session.execute(statements.KNOWN, (message_id,)).fetchone()
    if row is None:
        return []
    message = to_record(row).message
    noted = [event_of(row) for row in session.execute(statements.EVENTS, (message.ref,))]
    return lines_of(message, noted)


def purge(session: Session, now: int, limit: int, retention: int, retention_count: int) -> int:
    """Forget the oldest settled ones that are past the time, or more than the count."""
    purged = 0
    while purged < limit:
        oldest = session.execute(statements.OLDEST_RETIRED).fetchone()
        if oldest is None:
            break
        number, at, count, text, held = oldest
        over = count if now - at > retention else min(count, held - retention_count)
        over = min(over, limit - purged)
        if over <= 0:
            break
        if over < count:
            seqs = from_json_array(text)
            text = json_array(seqs[:over])
            rest = json_array(seqs[over:])
            session.execute(statements.KEEP_REST_OF_RETIRED, (count - over, rest, number))
        else:
            session.execute(statements.DROP_RETIRED, (number,))
        _forget(session, text, at)
        purged += over
    return purged


def erasures(session: Session, add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """Kept among the facts about the store: there are as few as messages of a key in flight."""
    for message_id in add:
        session.execute(statements.SET_META, (f"{_ERASE}{message_id}", ""))
    for message_id in remove:
        session.execute(statements.DROP_META, (f"{_ERASE}{message_id}",))
    rows = session.execute(statements.META_NAMES, (_ERASE, _AFTER_ERASE))
    return [name.removeprefix(_ERASE) for (name,) in rows]


def _forget(session: Session, seqs: str, at: int) -> None:
    """Those of them that still are the messages settled at that time."""
    rows = session.execute(statements.RETIRED_THEN, {"seqs": seqs, "at": at})
    session.remove([row[0] for row in rows])


def pause(session: Session, route: str, paused: bool) -> None:
    """Kept in the store, so that it holds for every process and after a restart."""
    if paused:
        session.execute(statements.PAUSE, (route,))
        return
    session.execute(statements.RESUME, (route,))
    (next_due,) = session.execute(statements.NEXT_DUE, {"route": route}).fetchone()
    if next_due is not None:
        session.wake(route, next_due)


def paused_routes(session: Session) -> frozenset[str]:
    return frozenset(row[0] for row in session.execute(statements.PAUSED))
