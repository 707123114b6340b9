"""schedule-event — `{event_id, execute_at (epoch s), payload (base64), topic}`.

The id may be called `event_id` or `id`. A record without one is named after its topic, partition
and offset.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.flow.formats import Format
from penstock.flow.formats.wire import derived_id, of_seconds
from penstock.model.draft import Draft
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.times import format_moment
from penstock.model.wire import read_json


class ScheduleEvent(msgspec.Struct, frozen=True):
    execute_at: float
    payload: str = ""
    event_id: str | None = None
    id: str | None = None
    topic: str | None = None


_event = msgspec.json.Decoder(ScheduleEvent)


def read(body: bytes, origin: str | None, _now: int) -> Sequence[Draft | PenstockError]:
    event = read_json(_event, body)
    event_id = _id(event)
    return [
        Draft(
            id=derived_id(origin, 0) if event_id is None else event_id,
            at=format_moment(of_seconds(event.execute_at, "execute_at")),
            payload_base64=event.payload,
            topic=event.topic or None,
        )
    ]


def _id(event: ScheduleEvent) -> str | None:
    if event.event_id is None:
        return event.id
    if event.id is not None and event.id != event.event_id:
        raise InvalidMessage("event_id", "differs from id; give one of them")
    return event.event_id


SCHEDULE_EVENT = Format(read)
