"""What a source's records may look like: one small pure function a format.

A format reads a record's bytes into drafts. What is wrong with the record as a whole is raised,
what is wrong with one of its messages stands in that one's place, which is its place in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from penstock.flow.formats import decision_batch, message, schedule_event, sms
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError

Read: TypeAlias = Callable[[bytes, str | None, int], Sequence[Draft | PenstockError]]
"""(the record's bytes, its origin, now) → its messages."""

Alone: TypeAlias = Callable[[bytes, Sequence[int]], Sequence[bytes] | None]
"""(the record's bytes, places in it) → records with each of those messages alone, for the dead
letter; None: the record is one message, and none other stands in it."""

ALONE: dict[str, Alone] = {
    "message": message.alone,
    "decision-batch": decision_batch.alone,
    "decision-items": decision_batch.alone,
}
"""Of the formats whose records may hold many messages."""

RECORDS = {"decision-batch": 20, "decision-items": 20}
"""Records to read at once where one may hold a thousand messages."""

BY_METHOD = {"decision-batch": decision_batch.read, "decision-items": decision_batch.read_items}
"""Formats whose messages may choose their route by a method."""

FORMATS: dict[str, Read] = {
    "message": message.read,
    "decision-batch": decision_batch.read,
    "decision-items": decision_batch.read_items,
    "schedule-event": schedule_event.read,
    "sms": sms.read,
}


def reader(name: str, routes: Mapping[str, str]) -> Read:
    """The format of that name; `routes`: method → route, of formats in BY_METHOD."""
    if not routes:
        return FORMATS[name]
    return partial(BY_METHOD[name], routes={word.lower(): to for word, to in routes.items()})
