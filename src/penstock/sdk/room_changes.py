"""Change some settings of a room and keep the others: `put` alone sets every one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from penstock.model.errors import UnknownThing
from penstock.model.room import DEFAULT_CLAIM_TTL, DEFAULT_SESSION_TTL, DEFAULT_WAIT_GRACE
from penstock.model.room_view import RoomOut
from penstock.model.times import format_duration
from penstock.sdk.fields import RoomFields

if TYPE_CHECKING:
    from penstock.sdk.async_rooms import AsyncRooms
    from penstock.sdk.embedded_rooms import EmbeddedRooms


async def change_room(
    rooms: AsyncRooms | EmbeddedRooms, room: str, **named: Unpack[RoomFields]
) -> RoomOut:
    """Create the room, or change the named settings of the one that is there.

    Reads, then puts: of two changes at once the later may take the earlier one back.
    """
    try:
        settings = stored_settings(await rooms.get(room))
    except UnknownThing:
        settings = RoomFields()
    settings.update(named)
    return await rooms.put(room, **settings)


def stored_settings(room: RoomOut) -> RoomFields:
    """The settings of a room as `put` takes them; the state and a lottery's seed stay unnamed.

    A time limit that has its default is left out: naming one also ends tickets that another
    program has queued.
    """
    settings = RoomFields(
        capacity=room.capacity,
        admit_rate=room.admit_rate,
        lanes=room.lanes,
        lottery=room.lottery,
        opens_at=room.opens_at,
        public=room.public,
    )
    if room.claim_ttl != format_duration(DEFAULT_CLAIM_TTL):
        settings["claim_ttl"] = room.claim_ttl
    if room.session_ttl != format_duration(DEFAULT_SESSION_TTL):
        settings["session_ttl"] = room.session_ttl
    if room.wait_grace != format_duration(DEFAULT_WAIT_GRACE):
        settings["wait_grace"] = room.wait_grace
    return settings
