"""rabbitmq://user:password@host:port/[vhost/]queue (amqp://, amqps://) — confirmed, persistent.

| what happens                                               | outcome                           |
|------------------------------------------------------------|-----------------------------------|
| the broker confirms (it is on disk, or on a majority)      | delivered                         |
| no queue takes it (published as mandatory)                 | dead                              |
| larger than the broker takes                               | dead                              |
| a `CC` or `BCC` header, a text longer than AMQP allows     | dead                              |
| the broker closes the channel over it (406)                | dead; all others go without it    |
| the broker refuses it (a full queue that rejects) …        | retry                             |
| no confirmation in time, though the broker answers         | retry, those without one alone    |
| no answer at all, no connection, a blocked broker          | retry; the circuit breaker counts |

The queue is the routing key of the default exchange; `exchange = "…"` names another, and then it
is just the routing key. A message's own topic, where the route allows it, takes its place.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelClosed,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)
from msgspec.structs import replace

from penstock.brokers.address import Address, Wrong
from penstock.brokers.confirms import ConfirmChannel, Confirms, Publication, content_header
from penstock.brokers.kept import Kept
from penstock.brokers.rabbitmq import (
    TROUBLE,
    RabbitOptions,
    connect,
    declare,
    hang_up,
    rabbit_address,
    trouble_text,
)
from penstock.model.envelope import CONTENT_TYPE, KEY, Envelope
from penstock.model.errors import SinkUnavailable
from penstock.model.headers import is_rabbitmq_control
from penstock.model.isolation import Isolation
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.topics import Topics
from penstock.ports.sink import Sink, SinkOptions, still_answers

MAX_BATCH = 250
SHORT = 255
"""Most bytes of a short text in AMQP: names, content types, routing keys."""
CONCURRENCY = 1_000
"""Most messages that a killed worker repeats; twice as many would be a tenth faster."""
_TOO_LARGE = re.compile(r"message size (\d+) .*max size (\d+)")


class RabbitSinkOptions(RabbitOptions, frozen=True, kw_only=True):
    exchange: str = ""
    """The exchange to publish to; unset: the default exchange, which routes by queue name."""


class Channels(Kept[ConfirmChannel]):
    """A sink's connection and channel; declares the queue if `create_topic` is set."""

    def __init__(
        self, address: Address, vhost: str, queue: str, options: RabbitOptions, wrong: Wrong
    ) -> None:
        super().__init__()
        self._address = address
        self._vhost = vhost
        self._queue = queue
        self._options = options
        self._wrong = wrong

    async def connect(self) -> ConfirmChannel:
        connection = await connect(self._address, self._vhost, self._options, self._wrong)
        try:
            if self._options.create_topic:
                await declare(connection, self._queue, self._options)
            return await ConfirmChannel.open_on(connection)
        except BaseException:
            self.later(hang_up(connection))
            raise

    def is_alive(self, line: ConfirmChannel) -> bool:
        return not line.is_closed and line.connection.is_opened

    async def hang_up(self, line: ConfirmChannel) -> None:
        await hang_up(line.connection)

    def another(self) -> Channels:
        """A separate connection of the same kind."""
        return Channels(self._address, self._vhost, self._queue, self._options, self._wrong)


class RabbitSink:
    max_batch = MAX_BATCH
    concurrency = CONCURRENCY

    def __init__(
        self,
        address: Address,
        vhost: str,
        topics: Topics,
        envelope: Envelope,
        options: RabbitSinkOptions,
        *,
        timeout: float,
        wrong: Wrong,
    ) -> None:
        self.name = address.shown
        self._hosts = ",".join(address.servers)
        self._topics = topics
        self._envelope = envelope
        self._exchange = options.exchange
        self._timeout = timeout
        self._scrub = address.scrubber(options)
        self._channels = Channels(address, vhost, topics.own, options, wrong)

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        outcomes: list[SendOutcome | None] = [self._unsendable(message) for message in batch]
        ready = [index for index, outcome in enumerate(outcomes) if outcome is None]
        if ready:
            closed = await self._publish(batch, ready, outcomes, self._channels)
            if closed is not None:
                await self._publish_apart(batch, ready, outcomes, closed)
        return [DELIVERED if outcome is None else outcome for outcome in outcomes]

    async def _publish_apart(
        self,
        batch: Sequence[Message],
        part: Sequence[int],
        outcomes: list[SendOutcome | None],
        closed: ChannelClosed,
    ) -> None:
        """After the broker closed the channel over one message: find it, and send all the others.

        The retries use a connection of their own, so that sends on the shared one are not blamed.
        """
        isolation: Isolation[int] = Isolation()
        alone: dict[int, ChannelClosed] = {}
        channels = self._channels.another()
        failed: ChannelClosed | None = closed
        try:
            while failed is not None:
                left = [index for index in part if outcomes[index] is None]
                culprits = self._too_large(batch, left, failed)
                for index in culprits:
                    outcomes[index] = self._refusal(failed, final=True)
                if culprits:
                    isolation.again([index for index in left if outcomes[index] is None])
                elif not isolation.split(left):
                    for index in left:
                        outcomes[index] = self._refusal(failed, final=False)
                    alone |= dict.fromkeys(left, failed) if len(left) == 1 else {}
                failed = None
                while failed is None and (parts := isolation.take()):
                    (part,) = parts
                    failed = await self._publish(batch, part, outcomes, channels) if part else None
                    if failed is None:
                        isolation.passed()
        finally:
            self._channels.later(channels.close())
        if isolation.has_passed:
            for index, error in alone.items():
                outcomes[index] = self._refusal(error, final=True)

    def _refusal(self, closed: ChannelClosed, *, final: bool) -> SendOutcome:
        """The outcome of a closed channel; `final` if it is certain which message caused it."""
        error = self._scrub(f"{self._hosts}: {trouble_text(closed)}")
        if final and isinstance(closed, ChannelPreconditionFailed):
            return Dead(error)
        return Retry(error, unreachable=not final and isinstance(closed, ChannelAccessRefused))

    async def _publish(
        self,
        batch: Sequence[Message],
        part: Sequence[int],
        outcomes: list[SendOutcome | None],
        channels: Channels,
    ) -> ChannelClosed | None:
        """Publish these messages of the batch and record their outcomes.

        If the broker closes the channel over one of them, the answer is that error, and only the
        messages confirmed before it are recorded.
        """
        channel = confirms = None
        messages = [batch[index] for index in part]
        closed: ChannelClosed | None = None
        results: Sequence[SendOutcome | None]
        try:
            async with asyncio.timeout(self._timeout):
                channel = await channels.line()
                frame = channel.max_content_size
                if any(message.headers and not self._fits(message, frame) for message in messages):
                    return await self._publish_fitting(batch, part, outcomes, channels, frame)
                publications = [self._publication(message) for message in messages]
                confirms = await channel.publish(publications, self._exchange)
                await confirms.done
        except TimeoutError:
            error = f"{self._hosts}: no confirmation in {self._timeout:g} s"
            gone = confirms is None or not (confirms.any_heard or await still_answers(self))
            silence = Retry(error, unreachable=gone)
            results = self._unconfirmed(messages, channels, channel, confirms, silence)
        except (ChannelPreconditionFailed, ChannelAccessRefused) as exc:
            channels.forget(channel)
            closed = exc
            results = self._confirmed(messages, confirms)
        except ChannelNotFoundEntity as exc:
            channels.forget(channel)
            results = [Retry(self._scrub(f"{self._hosts}: {trouble_text(exc)}"))] * len(part)
        except TROUBLE as exc:
            error = self._scrub(f"{self._hosts}: {trouble_text(exc)}")
            silence = Retry(error, unreachable=True)
            results = self._unconfirmed(messages, channels, channel, confirms, silence)
        else:
            if not confirms.refused and not confirms.returned:
                results = [DELIVERED] * len(part)
            else:
                results = [self._meaning(confirms, at, m) for at, m in enumerate(messages)]
        for index, outcome in zip(part, results, strict=True):
            outcomes[index] = outcome
        return closed

    def _fits(self, message: Message, frame: int) -> bool:
        """Whether properties and headers fit into one frame, as AMQP demands."""
        return len(content_header(self._publication(message))) <= frame

    async def _publish_fitting(
        self,
        batch: Sequence[Message],
        part: Sequence[int],
        outcomes: list[SendOutcome | None],
        channels: Channels,
        frame: int,
    ) -> ChannelClosed | None:
        """Publish the messages that fit a frame: the broker closes connections over larger ones."""
        fitting: list[int] = []
        for index in part:
            if self._fits(batch[index], frame):
                fitting.append(index)
            else:
                outcomes[index] = Dead(f"{self._hosts}: headers of more than {frame:,} bytes")
        return await self._publish(batch, fitting, outcomes, channels) if fitting else None

    def _confirmed(
        self, messages: Sequence[Message], confirms: Confirms | None
    ) -> list[SendOutcome | None]:
        """The outcomes that the broker has reported; None for the other messages."""
        if confirms is None:
            return [None] * len(messages)
        return [
            self._meaning(confirms, at, message) if confirms.is_heard(at) else None
            for at, message in enumerate(messages)
        ]

    def _unconfirmed(
        self,
        batch: Sequence[Message],
        channels: Channels,
        channel: ConfirmChannel | None,
        confirms: Confirms | None,
        silence: Retry,
    ) -> Sequence[SendOutcome]:
        """Outcomes after an error: confirmed messages are delivered, others may have arrived."""
        if silence.unreachable:
            channels.forget(channel)
        silence = replace(silence, unsure=confirms is not None)
        if channel is None or confirms is None:
            return [silence] * len(batch)
        channel.abandon(confirms)
        return [outcome or silence for outcome in self._confirmed(batch, confirms)]

    def _meaning(self, confirms: Confirms, index: int, message: Message) -> SendOutcome:
        if message.id in confirms.returned:
            said = confirms.returned[message.id]
            return Dead(f"{self._hosts}: no queue takes {self._topics.of(message)!r} ({said})")
        if index in confirms.refused:
            return Retry(f"{self._hosts} refused it: {self._topics.of(message)!r} may be full")
        return DELIVERED

    def _too_large(
        self, batch: Sequence[Message], left: Sequence[int], closed: ChannelClosed
    ) -> list[int]:
        """The messages larger than the limit that the error names; empty without a limit."""
        sizes = _TOO_LARGE.search(trouble_text(closed))
        largest = int(sizes[2]) if sizes is not None else None
        return [
            index for index in left if largest is not None and len(batch[index].payload) > largest
        ]

    def _unsendable(self, message: Message) -> Dead | None:
        """The fault of a message that would make the broker close the channel for all others."""
        if len(self._topics.of(message).encode()) > SHORT:
            return Dead(f"the topic is longer than the {SHORT} bytes AMQP allows")
        headers = message.headers
        if headers is None:
            return None
        control = next((name for name in headers if is_rabbitmq_control(name)), None)
        if control is not None:
            return Dead(f"the header {control!r} is RabbitMQ's own: no message may carry it")
        if any(len(name.encode()) > SHORT for name in headers):
            return Dead(f"the name of a header is longer than the {SHORT} bytes AMQP allows")
        if len(self._envelope.headers(message)[CONTENT_TYPE].encode()) > SHORT:
            return Dead(f"the content type is longer than the {SHORT} bytes AMQP allows")
        return None

    def _publication(self, message: Message) -> Publication:
        headers = self._envelope.headers(message)
        content_type = headers.pop(CONTENT_TYPE)
        headers[KEY] = message.key
        return Publication(
            routing_key=self._topics.of(message),
            message_id=message.id,
            content_type=content_type,
            headers=headers,
            priority=message.priority,
            body=message.payload,
        )

    async def check(self) -> None:
        channel = None
        try:
            async with asyncio.timeout(self._timeout):
                channel = await self._channels.line()
                await (await channel.connection.channel(publisher_confirms=False)).close()
        except (*TROUBLE, TimeoutError) as exc:
            self._channels.forget(channel)
            said = self._scrub(trouble_text(exc))
            raise SinkUnavailable(f"{self._hosts} cannot be reached: {said}") from exc

    async def close(self) -> None:
        await self._channels.close()


async def open_sink(url: str, options: SinkOptions) -> Sink:
    address, vhost, queue = rabbit_address(url, options.wrong)
    own = options.read(RabbitSinkOptions, address.query)
    address.context(own, options.wrong)  # unreadable certificate files are an error now
    for name in options.headers:
        if is_rabbitmq_control(name):
            raise options.wrong(f"{name!r} is RabbitMQ's own and cannot be a text", "headers")
    return RabbitSink(
        address,
        vhost,
        Topics(queue, options.topics),
        options.envelope(),
        own,
        timeout=options.timeout,
        wrong=options.wrong,
    )
