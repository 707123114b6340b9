"""FIND, TIMELINE, PURGE, PAUSE: what is known of messages and routes, and forgetting it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.message import Event, Message
from penstock.model.state import SETTLED
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import from_json_array, json_array, to_message
from penstock.stores.sqlite.session import Session


def find(session: Session, ids: Sequence[str]) -> list[Message | None]:
    rows = session.execute(statements.BY_IDS, (json_array(ids),))
    found = {message.id: message for message in map(to_message, rows)}
    return [found.get(message_id) for message_id in ids]


def timeline(session: Session, message_id: str) -> list[Event]:
    """The usual course is read off the message's columns, the rest off its events."""
    row = session.execute(statements.BY_ID, (message_id,)).fetchone()
    if row is None:
        return []
    message = to_message(row)
    noted = [
        Event(at=at, event=event, detail=detail, attempt=attempt)
        for at, event, detail, attempt in session.execute(statements.EVENTS, (message.ref,))
    ]
    lines = [Event(at=message.created, event="accepted"), *noted]
    if message.claimed is not None and not _release_is_noted(noted):
        lines.append(Event(at=message.claimed, event="released", attempt=message.attempt))
    if message.state in SETTLED and message.settled is not None:
        attempt = message.attempt if message.claimed is not None else None
        error = message.last_error if message.state != "delivered" else None
        lines.append(
            Event(at=message.settled, event=message.state.value, detail=error, attempt=attempt)
        )
    return lines


def _release_is_noted(noted: Sequence[Event]) -> bool:
    """The lease that the columns tell of is in the events too once a cancel was asked in it."""
    return bool(noted) and noted[-1].event == "cancel_asked"


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
        session.execute(statements.FORGET, {"seqs": text})
        session.execute(statements.FORGET_EVENTS, {"seqs": text})
        purged += over
    return purged


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
