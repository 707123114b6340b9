"""Every call about waiting rooms as a value: what to send and how to read the answer. No I/O."""

from __future__ import annotations

import msgspec

from penstock.model.room import RoomDraft
from penstock.model.room_view import EnteredOut, RoomOut, RoomPage, TicketOut
from penstock.sdk.calls import Call, segment

_encode = msgspec.json.Encoder().encode
_room = msgspec.json.Decoder(RoomOut).decode
_page = msgspec.json.Decoder(RoomPage).decode
_ticket = msgspec.json.Decoder(TicketOut).decode
_entered = msgspec.json.Decoder(EnteredOut).decode


def put(room: str, draft: RoomDraft) -> Call[RoomOut]:
    return Call("PUT", _at(room), _room, body=_encode(draft))


def get(room: str) -> Call[RoomOut]:
    return Call("GET", _at(room), _room)


def list_page(cursor: str | None, limit: int) -> Call[tuple[list[RoomOut], str | None]]:
    query = {"limit": str(limit)} | ({} if cursor is None else {"cursor": cursor})

    def read(body: bytes) -> tuple[list[RoomOut], str | None]:
        page = _page(body)
        return page.items, page.next

    return Call("GET", "/v1/rooms", read, query=query)


def change(room: str, word: str) -> Call[RoomOut]:
    """`word`: pause, resume, close or reset. A reset is never sent twice: it is a new epoch."""
    return Call("POST", f"{_at(room)}/{word}", _room, body=b"{}", counts=word == "reset")


def join(
    room: str, user: str, lane: str | None, instance: str | None, ticket: str | None
) -> Call[TicketOut]:
    asked = {"user": user, "lane": lane, "instance": instance}
    body = _encode({name: value for name, value in asked.items() if value is not None})
    return Call("POST", f"{_at(room)}/join", _ticket, body=body, ticket=ticket)


def look(room: str, user: str, ticket: str | None) -> Call[TicketOut]:
    return Call("GET", _ticket_at(room, user), _ticket, ticket=ticket)


def heartbeat(room: str, user: str, ticket: str | None) -> Call[TicketOut]:
    body = _encode({"user": user})
    return Call("POST", f"{_at(room)}/heartbeat", _ticket, body=body, ticket=ticket)


def enter(room: str, token: str) -> Call[EnteredOut]:
    return Call("POST", f"{_at(room)}/enter", _entered, body=_encode({"token": token}), counts=True)


def leave(room: str, user: str, ticket: str | None) -> Call[EnteredOut]:
    return Call("DELETE", _ticket_at(room, user), _entered, ticket=ticket)


def revoke(room: str, user: str) -> Call[EnteredOut]:
    return Call("POST", f"{_ticket_at(room, user)}/revoke", _entered, body=b"{}")


def _at(room: str) -> str:
    return f"/v1/rooms/{segment(room)}"


def _ticket_at(room: str, user: str) -> str:
    return f"{_at(room)}/tickets/{segment(user)}"
