"""The hot way for visitors: frequent `POST …/join` and `GET …/tickets/{user}`.

Only for callers with a token, or where none is needed, and for joins of rooms that are known to be
public; all others go the ordinary way, and so does every request that is to be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.context import VISITOR_BODY
from penstock.api.http.hot_route import HotRoute
from penstock.api.http.room_shapes import check_join, check_public_join, decode_join
from penstock.api.http.visitors import Visitors
from penstock.model.room import is_room_name
from penstock.model.ticket import Joining
from penstock.rooms.join import ticket_taken
from penstock.rooms.parts import RoomParts
from penstock.rooms.view import ticket_out
from penstock.rooms.wait import Place

ROOMS = b"/v1/rooms/"
_JOIN = b"/join"
_TICKETS = b"/tickets/"
MAX_ROUTES = 1_024
_encoder = msgspec.json.Encoder()


class RoomRoutes:
    """Routes by address, made on first use."""

    def __init__(self, rooms: RoomParts, visitors: Visitors, joins_per_client: int) -> None:
        self._rooms = rooms
        self._visitors = visitors
        self._joins_per_client = joins_per_client
        self._joins: dict[bytes, HotRoute[Joining, Place]] = {}

    def join(self, url: bytes) -> HotRoute[Joining, Place] | None:
        """The way into the line of the room with this address."""
        route = self._joins.get(url)
        if route is None:
            name = _room_to_join(url)
            if name is not None:
                route = self._join(name)
                if len(self._joins) >= MAX_ROUTES:
                    self._joins.clear()
                self._joins[url] = route
        return route

    def public_join(self, url: bytes, address: str) -> HotRoute[Joining, Place] | None:
        """The join route for a caller without a token; None while the room is not known to be
        public.
        """
        room = _room_to_join(url)
        if room is None or not self._visitors.is_public(room):
            return None
        rooms = self._rooms

        def admit() -> None:
            self._visitors.check_join(address, self._joins_per_client)

        def decode(body: bytes) -> Joining:
            asked = decode_join(body)
            check_public_join(asked)
            return rooms.join.joining(check_join(asked).user, asked.lane, asked.instance)

        def submit(joining: Joining, done: Callable[[Place | Exception], None]) -> None:
            rooms.join.submit(room, joining, done)

        return HotRoute(
            decode,
            submit,
            _joined_first,
            Scope.OPEN,
            message=False,
            repeats=False,
            max_body=VISITOR_BODY,
            admit=admit,
            verb="",
        )

    def ticket(self, url: bytes) -> HotRoute[str, Place] | None:
        """The way to a visitor's place."""
        room, found, user = url[len(ROOMS) :].partition(_TICKETS)
        name, who = _text(room), _text(user)
        if not found or name is None or not is_room_name(name) or not who:
            return None
        return self._ticket(name, who)

    def _join(self, room: str) -> HotRoute[Joining, Place]:
        rooms = self._rooms

        def decode(body: bytes) -> Joining:
            asked = check_join(decode_join(body))
            return rooms.join.joining(asked.user, asked.lane, asked.instance)

        def submit(joining: Joining, done: Callable[[Place | Exception], None]) -> None:
            rooms.join.submit(room, joining, done)

        return HotRoute(
            decode,
            submit,
            _joined,
            message=False,
            verb="join",
            target=f"room {room}",
            max_body=VISITOR_BODY,
        )

    def _ticket(self, room: str, user: str) -> HotRoute[str, Place]:
        rooms = self._rooms

        def decode(body: bytes) -> str:
            del body  # there is none
            return user

        def submit(user: str, done: Callable[[Place | Exception], None]) -> None:
            rooms.wait.submit(room, user, done)

        return HotRoute(decode, submit, _looked, Scope.READ, b"GET", message=False, verb="")


def _room_to_join(url: bytes) -> str | None:
    name = _text(url[len(ROOMS) : -len(_JOIN)]) if url.endswith(_JOIN) else None
    return name if name is not None and is_room_name(name) else None


def _text(raw: bytes) -> str | None:
    """One segment of the path; None if only the ordinary way can answer it."""
    if not raw or b"/" in raw or b"?" in raw or b"#" in raw:
        return None
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return None


def _joined(place: Place) -> Answer:
    return Answer(200, _encoder.encode(ticket_out(place, secret=True)))


def _joined_first(place: Place) -> Answer:
    """Refuse a user who has a ticket already: naming a user does not prove to be that user."""
    if not place.new:
        raise ticket_taken()
    return _joined(place)


def _looked(place: Place) -> Answer:
    return Answer(200, _encoder.encode(ticket_out(place)))
