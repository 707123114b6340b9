"""Publishing many messages at once over AMQP 0-9-1, each confirmed by the broker.

aiormq needs a task, a lock and three futures per message. Here a batch is one write and one future;
frames are encoded by hand because that is most of the work of a publisher.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pamqp.frame
from aiormq.abc import AbstractConnection, ChannelFrame, ConfirmationFrameType
from aiormq.channel import Channel
from aiormq.exceptions import InvalidFrameError
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

_FULL = 0.001
"""Seconds between checks whether a full writer has space again."""
_FRAME = struct.Struct(">BHL")
_HEADER = struct.Struct(">HHQH")
_BASIC = 60
_PERSISTENT = 2
_END = b"\xce"
# Properties present: content-type, headers, delivery-mode, priority, message-id.
_FLAGS = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 11 | 1 << 7


@dataclass(frozen=True, slots=True)
class Publication:
    """One message with its AMQP properties."""

    routing_key: str
    message_id: str
    content_type: str
    headers: Mapping[str, str]
    priority: int
    body: bytes


class Confirms:
    """The broker's answers to one batch."""

    def __init__(self, batch: Sequence[Publication], done: asyncio.Future[None]) -> None:
        self.done = done
        self.refused: set[int] = set()
        """Indexes that the broker refused (nack), mostly because a queue is full."""
        self.returned: dict[str, str] = {}
        """Ids that no queue accepts, with the broker's text."""
        self._heard = bytearray(len(batch))
        self._left = len(batch)
        self._low = 0
        """Every message before this index has its answer."""
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    def has(self, message_id: str) -> bool:
        return any(one.message_id == message_id for one in self._batch)

    def hear(self, index: int, ack: bool) -> None:
        if not self._heard[index]:
            self._heard[index] = 1
            self._left -= 1
            if not ack:
                self.refused.add(index)

    def hear_up_to(self, index: int, ack: bool) -> None:
        end = min(index + 1, len(self._batch))
        for earlier in range(self._low, end):
            self.hear(earlier, ack)
        self._low = max(self._low, end)

    @property
    def complete(self) -> bool:
        return not self._left

    def is_heard(self, index: int) -> bool:
        """Whether the broker has answered for this message."""
        return bool(self._heard[index])

    @property
    def any_heard(self) -> bool:
        return self._left < len(self._batch)


class PlainChannel(Channel):
    """aiormq's channel, reading content frames without a task or a future for each."""

    async def _content(self) -> tuple[ContentHeader, bytes]:
        header = await self._get_frame()
        if not isinstance(header, ContentHeader):
            raise InvalidFrameError(header)
        parts: list[bytes] = []
        left = header.body_size
        while left > 0:
            body = await self._get_frame()
            if not isinstance(body, ContentBody):
                raise InvalidFrameError(body)
            parts.append(body.value)
            left -= len(body.value)
        return header, parts[0] if len(parts) == 1 else b"".join(parts)


class ConfirmChannel(PlainChannel):
    """A channel with batches of confirmed publications of its own."""

    def __init__(self, connection: AbstractConnection, number: int = 1) -> None:
        super().__init__(connection, number)
        self._sent = 0
        self._open: deque[tuple[int, Confirms]] = deque()
        """Incomplete batches, each with the tag of its first message."""
        self._publish_frames: dict[tuple[str, str], bytes] = {}

    @classmethod
    async def open_on(cls, connection: AbstractConnection) -> ConfirmChannel:
        channel = cls(connection)
        connection.channels[channel.number] = channel
        await channel.open()
        return channel

    async def publish(self, batch: Sequence[Publication], exchange: str = "") -> Confirms:
        """Write a batch to the connection; `done` completes once all are confirmed or refused.

        Raises aiormq's errors, here or from `done`, when the connection breaks.
        """
        payload = b"".join(self._encode(one, exchange) for one in batch)
        while self.write_queue.full():  # noqa: ASYNC110 - the queue has no other sign
            await asyncio.sleep(_FULL)
        # No await from here to the queue: tags are counted in the order of writing.
        done: asyncio.Future[None] = self.create_future()
        confirms = Confirms(batch, done)
        self._open.append((self._sent + 1, confirms))
        self._sent += len(batch)
        drained = self.create_future()
        self.write_queue.put_nowait(
            ChannelFrame(payload=payload, should_close=False, drain_future=drained)
        )
        return confirms

    def abandon(self, confirms: Confirms) -> None:
        """Stop waiting for the rest of this batch."""
        self._open = deque(one for one in self._open if one[1] is not confirms)

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        tag, ack = frame.delivery_tag or 0, isinstance(frame, commands.Basic.Ack)
        multiple = bool(getattr(frame, "multiple", False))
        for first, confirms in self._open:
            if first > tag:
                break
            if multiple:
                confirms.hear_up_to(tag - first, ack)
            elif tag < first + len(confirms):
                confirms.hear(tag - first, ack)
        while self._open and self._open[0][1].complete:
            _settle(self._open.popleft()[1])
        for _, confirms in self._open:  # later batches may complete before earlier ones
            if confirms.complete:
                _settle(confirms)

    async def _on_return_frame(self, frame: commands.Basic.Return) -> None:
        """Record a returned message; of its content only the id matters."""
        header, _ = await self._content()
        message_id = header.properties.message_id or ""
        for _, confirms in self._open:
            if confirms.has(message_id):
                confirms.returned[message_id] = str(frame.reply_text)

    def _encode(self, one: Publication, exchange: str) -> bytes:
        header = content_header(one)
        number = self.number
        pieces = [
            self._publish_frame(exchange, one.routing_key),
            _FRAME.pack(2, number, len(header)) + header + _END,
        ]
        size = self.max_content_size
        for start in range(0, len(one.body), size):
            part = one.body[start : start + size]
            pieces += (_FRAME.pack(3, number, len(part)), part, _END)
        return b"".join(pieces)

    def _publish_frame(self, exchange: str, routing_key: str) -> bytes:
        known = self._publish_frames.get((exchange, routing_key))
        if known is None:
            if len(self._publish_frames) > 1000:  # callers choose the topics
                self._publish_frames.clear()
            known = pamqp.frame.marshal(
                commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True),
                self.number,
            )
            self._publish_frames[exchange, routing_key] = known
        return known


def content_header(one: Publication) -> bytes:
    """The payload of an AMQP content header frame: persistent, with these properties."""
    table = b"".join(
        _short(name) + b"S" + _long(value.encode()) for name, value in one.headers.items()
    )
    return b"".join(
        (
            _HEADER.pack(_BASIC, 0, len(one.body), _FLAGS),
            _short(one.content_type),
            _long(table),
            bytes((_PERSISTENT, one.priority)),
            _short(one.message_id),
        )
    )


def _settle(confirms: Confirms) -> None:
    if not confirms.done.done():
        confirms.done.set_result(None)


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
