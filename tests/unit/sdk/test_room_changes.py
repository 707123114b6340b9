"""What a change of a room keeps is what the room was put with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState, check_room
from penstock.model.room_view import RoomOut, room_out
from penstock.sdk.room_changes import stored_settings
from penstock.sdk.rules import room_draft
from penstock.testing.room_machine import settings_of_rooms


def shown(settings: RoomSettings) -> RoomOut:
    room = Room(name="sale", settings=settings)
    return room_out(RoomFigures(room=room, state=RoomState.OPEN, in_use=0))


def put_again(settings: RoomSettings) -> RoomSettings:
    return check_room(room_draft(stored_settings(shown(settings))))


@given(settings_of_rooms, st.booleans())
def test_a_room_put_with_its_own_settings_is_the_same(made: RoomSettings, public: bool) -> None:
    limits = (made.claim_ttl, made.session_ttl, made.wait_grace)
    named = any(limit is not None for limit in limits)
    expected = replace(made, public=public, seed="", expire_outside=named)
    assert put_again(replace(made, public=public)) == expected


def test_tickets_of_other_programs_do_not_begin_to_expire_by_a_change() -> None:
    assert put_again(RoomSettings()) == RoomSettings(expire_outside=False)
