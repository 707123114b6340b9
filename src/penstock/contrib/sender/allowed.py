"""Decisions on their way out, in front of any sink: what leaves was allowed.

A notification of a decision batch is kept with the verdict it came with, DEFER say, so that
whoever looks at it sees what its sender decided. By the time it goes on Penstock has decided too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.model.message import Message
from penstock.model.outcome import SendOutcome
from penstock.ports.sink import Sink

ALLOWED = b'{"decision":"ALLOW",'
_BEFORE = (b'{"decision":"DEFER",', b'{"decision":null,')
"""How the format writes a notification that had to be decided again."""


class AllowedSink:
    """Says ALLOW in front of the sink behind it."""

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
