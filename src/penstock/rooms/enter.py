"""ENTER: redeem an entry token, once, against the slot as well as the signature."""

from __future__ import annotations

from penstock.flow.observe import Observer
from penstock.model.errors import InvalidToken, TokenUsed
from penstock.model.ticket import EnterAnswer, Ticket
from penstock.ports.rooms import RoomStore, TokenSigner
from penstock.rooms.wait import unknown_room


class Enter:
    def __init__(self, store: RoomStore, signer: TokenSigner, observer: Observer) -> None:
        self._store = store
        self._signer = signer
        self._observer = observer

    async def enter(self, room: str, token: str) -> Ticket:
        """Let the visitor in. TokenUsed the second time, InvalidToken if the token is void."""
        now = self._store.clock.now()
        read = self._signer.read(token, room, now)
        if read is None:
            raise InvalidToken("this token is not valid for this room now", field="token")
        answers = await self._store.enter(room, [read], now)
        if answers is None:
            raise unknown_room(room)
        answer = answers[0]
        if answer.answer is EnterAnswer.USED:
            raise TokenUsed("this token was used before", field="token")
        if answer.ticket is None or answer.answer is EnterAnswer.INVALID:
            raise InvalidToken("this token holds no slot any more", field="token")
        self._observer.visited("entered")
        return answer.ticket
