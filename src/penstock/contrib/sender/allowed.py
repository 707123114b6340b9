"""Sets the decision of outgoing notifications to ALLOW, in front of any sink.

A notification of a decision batch is stored with its original verdict, DEFER for example, so that a
reader of the message sees its sender's decision. By the time it is sent, Penstock has allowed it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.model.message import Message
from penstock.model.outcome import SendOutcome
from penstock.ports.sink import Sink

ALLOWED = b'{"decision":"ALLOW",'
_BEFORE = (b'{"decision":"DEFER",', b'{"decision":null,')
"""The beginnings by which the format writes a notification that had to be decided again."""


class AllowedSink:
    """Writes ALLOW into notifications, and passes them to the sink behind it."""

    def __init__(self, inner: Sink) -> None:
        self.name = inner.name
        self.max_batch = inner.max_batch
        self.concurrency = inner.concurrency
        self._inner = inner

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        return await self._inner.send([_allowed(message) for message in batch])

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()


def _allowed(message: Message) -> Message:
    for before in _BEFORE:
        if message.payload.startswith(before):
            payload = ALLOWED + message.payload[len(before) :]
            return msgspec.structs.replace(message, payload=payload)
    return message
