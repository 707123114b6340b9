"""One message in the plain book: what is kept of it, and how it changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.model.amending import refusal_kept
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amendment
from penstock.model.query import Filter, RouteFigures
from penstock.model.state import State


@dataclass(slots=True)
class Row:
    """One message and what is kept beside it."""

    message: Message
    token: int | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Something happened to it before: in an ordered route it comes before the rest."""
        message = self.message
        return message.attempt > message.attempt_floor or message.decided is not None

    def note(
        self, at: int, event: str, detail: str | None = None, attempt: int | None = None
    ) -> None:
        self.events.append(Event(at=at, event=event, detail=detail, attempt=attempt))

    @property
    def last_release(self) -> int:
        """Its place among the events."""
        return max(i for i, event in enumerate(self.events) if event.event == "released")


def message_of(new: NewMessage, now: int) -> Message:
    return Message(
        id=new.id,
        route=new.route,
        key=new.key,
        payload=new.payload,
        due=new.due,
        content_type=new.content_type,
        headers=new.headers or None,
        expires=new.expires,
        priority=new.priority,
        labels=new.labels,
        topic=new.topic,
        created=now,
    )


def inherited(held: Message, new: NewMessage) -> dict[str, object]:
    """What a message that takes another's place inherits."""
    return {
        "attempt": held.attempt,
        "attempt_floor": held.attempt_floor,
        "created": held.created,
        "last_error": held.last_error,
        "decided": refusal_kept(held, new),
    }


def rescheduled(held: Message, amendment: Amendment) -> Message:
    given = {
        name: value
        for name in ("due", "payload", "content_type", "headers", "priority", "labels")
        if (value := getattr(amendment, name)) is not None
    }
    changed = replace(held, **given, expires=amendment.expires_then(held))
    return changed if changed.headers else replace(changed, headers=None)


def matches(message: Message, where: Filter) -> bool:
    return (
        where.state in (None, message.state)
        and where.route in (None, message.route)
        and where.key in (None, message.key)
        and (where.due_from is None or message.due >= where.due_from)
        and (where.due_to is None or message.due < where.due_to)
        and (where.error is None or where.error in (message.last_error or ""))
    )


def count_in(figures: RouteFigures, message: Message, now: int) -> None:
    if message.state is State.LEASED:
        figures.leased += 1
    elif message.state is State.DEAD:
        figures.dead += 1
    else:
        figures.scheduled += 1
        figures.overdue += message.due <= now
        if figures.next_due is None or message.due < figures.next_due:
            figures.next_due = message.due
