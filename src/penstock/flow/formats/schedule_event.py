"""schedule-event — `{event_id, execute_at (epoch s), payload (base64), topic}`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.flow.formats.wire import derived_id, of_seconds
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError
from penstock.model.times import format_moment
from penstock.model.wire import read_json


class ScheduleEvent(msgspec.Struct, frozen=True):
    execute_at: float
    payload: str = ""
    event_id: str | None = None
    topic: str | None = None


_event = msgspec.json.Decoder(ScheduleEvent)


def read(body: bytes, origin: str | None, _now: int) -> Sequence[Draft | PenstockError]:
    event = read_json(_event, body)
    return [
        Draft(
            id=event.event_id if event.event_id is not None else derived_id(origin, 0),
            at=format_moment(of_seconds(event.execute_at, "execute_at")),
            payload_base64=event.payload,
            topic=event.topic or None,
        )
    ]
