"""Entry tokens without cryptography: who may enter is the store's affair, and that is simulated."""

from __future__ import annotations

import json


class PlainSigner:
    """A TokenSigner whose tokens can be read by anybody."""

    def sign(self, room: str, user: str, pass_id: str, issued: int, expires: int) -> str:
        return json.dumps([room, user, pass_id, issued, expires])

    def read(self, token: str, room: str, now: int) -> tuple[str, str] | None:
        aud, user, pass_id, issued, expires = json.loads(token)
        in_time = issued * 1000 <= now < expires * 1000
        return (user, pass_id) if aud == room and in_time else None

    def holder(self, token: str) -> tuple[str, str, str]:
        """(Room, user, pass id), whatever the time."""
        room, user, pass_id, _, _ = json.loads(token)
        return room, user, pass_id

    def ticket_secret(self, room: str, epoch: int, user: str, number: int) -> str:
        return f"{room}/{epoch}/{user}/{number}"

    def is_ticket_secret(self, text: str, room: str, epoch: int, user: str, number: int) -> bool:
        return text == self.ticket_secret(room, epoch, user, number)
