"""nats://user:password@host:port/subject (tls://) — JetStream, many in flight, each acknowledged.

| what happens                                          | outcome                              |
|-------------------------------------------------------|--------------------------------------|
| the stream's PubAck, "duplicate" included             | delivered                            |
| larger than the server or the stream takes            | dead                                 |
| a subject no message can be published to              | dead                                 |
| a `Nats-…` header of the caller's                     | dead                                 |
| no stream takes the subject, a stream that is full …  | retry                                |
| no PubAck in time, though the server answers          | retry, those without one alone       |
| no answer at all, no connection                       | retry; the circuit breaker counts it |

`Nats-Msg-Id` is the message's id, so a repeat inside the stream's duplicate window is kept once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import BadHeaderError, BadSubjectError, MaxPayloadError
from nats.js.api import Header

from penstock.brokers.address import Address, Wrong
from penstock.brokers.kept import Kept
from penstock.brokers.nats import (
    TROUBLE,
    NatsOptions,
    connect,
    hang_up,
    is_reserved,
    is_subject,
    make_stream,
    nats_address,
    stream_config,
    trouble_text,
    while_connected,
)
from penstock.model.envelope import KEY, Envelope
from penstock.model.errors import SinkUnavailable
from penstock.model.headers import is_nats_control
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.topics import Topics
from penstock.ports.sink import Sink, SinkOptions, still_answers

MAX_BATCH = 250
CONCURRENCY = 1_000
"""Most messages that a killed worker repeats; twice as many would be a tenth faster."""
UNLIMITED = -1
_OWN_ROOM = 300 * 1024
"""Most bytes of headers of a message with only the route's headers (at most 64)."""
_TOO_LARGE = frozenset({10054, 10097})
"""JetStream's error codes: message, or headers, larger than the stream allows."""


_ONE_MESSAGES = (BadHeaderError, BadSubjectError, MaxPayloadError, ValueError)
"""The client's errors about one message, raised before any byte of it is sent."""


class Refusal(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct, frozen=True):
    """JetStream's answer to a publication; without an error it confirms the message."""

    stream: str | None = None
    error: Refusal | None = None


_ack = msgspec.json.Decoder(PubAck)


Wire: TypeAlias = tuple[str, bytes, dict[str, str]]
"""Subject, payload and headers as they are published."""


class _Acks:
    """The answers to one send, counted; one future for all of them."""

    __slots__ = ("_left", "done", "outcomes")

    def __init__(self, size: int) -> None:
        self._left = size
        self.outcomes: list[SendOutcome | None] = [None] * size
        """Outcomes by index; None until the answer arrives."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, index: int, outcome: SendOutcome) -> None:
        self.outcomes[index] = outcome
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


class _Connection:
    """One connection and the batches whose answers it awaits."""

    def __init__(self, client: Client, inbox: str) -> None:
        self.client = client
        self._inbox = inbox
        self._sent = 0
        self._open: dict[str, _Acks] = {}

    @classmethod
    async def open_on(cls, client: Client) -> _Connection:
        line = cls(client, client.new_inbox())
        await client.subscribe(
            f"{line._inbox}.*.*",
            cb=line._hear,
            pending_msgs_limit=UNLIMITED,
            pending_bytes_limit=UNLIMITED,
        )
        return line

    async def send(self, wires: Sequence[Wire], batch: _Acks) -> None:
        """Publish and wait for every answer; the batch keeps those that came before an error."""
        self._sent += 1
        number = str(self._sent)
        self._open[number] = batch
        publish = self.client.publish
        try:
            for index, (subject, payload, headers) in enumerate(wires):
                reply = f"{self._inbox}.{number}.{index}"
                try:
                    await publish(subject, payload, reply, headers)
                except _ONE_MESSAGES as exc:
                    batch.answered(index, Dead(f"cannot be published: {trouble_text(exc)}"))
            if not await while_connected(self.client, batch.done):
                raise ConnectionError("the connection was lost")
        finally:
            del self._open[number]

    async def _hear(self, msg: Msg) -> None:
        number, _, index = msg.subject[len(self._inbox) + 1 :].partition(".")
        batch = self._open.get(number)
        if batch is not None:  # a cancelled send awaits no answer
            batch.answered(int(index), meaning(msg))


def meaning(msg: Msg) -> SendOutcome:
    """The outcome that JetStream's answer to one publication means."""
    if msg.headers and msg.headers.get(Header.STATUS) == "503":
        return Retry("no stream takes the subject")
    try:
        ack = _ack.decode(msg.data)
    except msgspec.DecodeError:
        return Retry("the answer is not a PubAck")
    if ack.error is None:
        return DELIVERED if ack.stream is not None else Retry("the answer is not a PubAck")
    text = f"{ack.error.description} ({ack.error.err_code})"
    return Dead(text) if ack.error.err_code in _TOO_LARGE else Retry(text)


class _Connections(Kept[_Connection]):
    """The connection of a sink; creates a stream for its subject if `create_topic` is set."""

    def __init__(self, address: Address, subject: str, options: NatsOptions, wrong: Wrong) -> None:
        super().__init__()
        self._address = address
        self._options = options
        self._wrong = wrong
        self._stream = stream_config(subject, options, wrong)

    async def connect(self) -> _Connection:
        client = await connect(self._address, self._options, self._wrong)
        try:
            if self._options.create_topic:
                await make_stream(client.jetstream(), self._stream)
            return await _Connection.open_on(client)
        except BaseException:
            self.later(hang_up(client))
            raise

    def is_alive(self, line: _Connection) -> bool:
        return line.client.is_connected

    async def hang_up(self, line: _Connection) -> None:
        await hang_up(line.client)


class NatsSink:
    max_batch = MAX_BATCH
    concurrency = CONCURRENCY

    def __init__(
        self,
        address: Address,
        topics: Topics,
        envelope: Envelope,
        options: NatsOptions,
        *,
        timeout: float,
        wrong: Wrong,
    ) -> None:
        self.name = address.shown
        self._hosts = ",".join(address.servers)
        self._topics = topics
        self._envelope = envelope
        self._timeout = timeout
        self._scrub = address.scrubber(options)
        self._lines = _Connections(address, topics.own, options, wrong)

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if not batch:
            return []
        outcomes: list[SendOutcome] = [DELIVERED] * len(batch)
        line = heard = None
        sendable: list[int] = []
        error, gone = "", False
        try:
            async with asyncio.timeout(self._timeout):
                line = await self._lines.line()
                wires: list[Wire] = []
                for index, message in enumerate(batch):
                    wire = self._wire(message, line.client.max_payload)
                    if isinstance(wire, Dead):
                        outcomes[index] = wire
                    else:
                        sendable.append(index)
                        wires.append(wire)
                if not wires:
                    return outcomes
                heard = _Acks(len(wires))
                await line.send(wires, heard)
        except TimeoutError:
            error = f"no acknowledgement in {self._timeout:g} s"
            gone = heard is None or not (any(heard.outcomes) or await still_answers(self))
        except TROUBLE as exc:
            error, gone = trouble_text(exc), True
        if gone:
            self._lines.forget(line)
        silence = Retry(
            self._scrub(f"{self._hosts}: {error}"), unreachable=gone, unsure=heard is not None
        )
        if heard is None:
            return [silence] * len(batch)
        for index, outcome in zip(sendable, heard.outcomes, strict=True):
            outcomes[index] = silence if outcome is None else self._named(outcome, batch[index])
        return outcomes

    def _named(self, outcome: SendOutcome, message: Message) -> SendOutcome:
        if outcome is DELIVERED:
            return outcome
        where = f"{self._hosts}/{self._topics.of(message)}"
        if isinstance(outcome, Retry):
            return Retry(self._scrub(f"{where}: {outcome.error}"))
        return (
            Dead(self._scrub(f"{where}: {outcome.error}")) if isinstance(outcome, Dead) else outcome
        )

    def _wire(self, message: Message, limit: int) -> Wire | Dead:
        subject = self._topics.of(message)
        if not is_subject(subject) or (subject != self._topics.own and is_reserved(subject)):
            return Dead(f"{subject[:100]!r} cannot be the subject of a message")
        if message.headers:
            control = next((name for name in message.headers if is_nats_control(name)), None)
            if control is not None:
                return Dead(f"the header {control!r} is NATS's own: no message may carry it")
        headers = self._envelope.headers(message)
        headers[KEY] = message.key
        headers[Header.MSG_ID] = _unambiguous(message.id)
        size = len(message.payload)
        # The server closes the connection of a client that sends more than it allows.
        if (message.headers or size > limit - _OWN_ROOM) and size + header_size(headers) > limit:
            return Dead(f"larger than the {limit:,} bytes {self._hosts} takes")
        return subject, message.payload, headers

    async def check(self) -> None:
        line = None
        try:
            async with asyncio.timeout(self._timeout):
                line = await self._lines.line()
                if not await while_connected(line.client, line.client.flush()):  # a round trip
                    raise ConnectionError("the connection was lost")
        except (*TROUBLE, TimeoutError) as exc:
            self._lines.forget(line)
            said = self._scrub(trouble_text(exc))
            raise SinkUnavailable(f"{self._hosts} cannot be reached: {said}") from exc

    async def close(self) -> None:
        await self._lines.close()


def _unambiguous(message_id: str) -> str:
    """Quote an id with outer blanks, which the client strips: two ids must not become one."""
    if message_id[0] != " " and message_id[-1] != " ":
        return message_id
    return sha256(message_id.encode()).hexdigest()


def header_size(headers: dict[str, str]) -> int:
    """Bytes that these headers take on the wire."""
    lines = sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
    return len("NATS/1.0\r\n\r\n") + lines


async def open_sink(url: str, options: SinkOptions) -> Sink:
    address, subject = nats_address(url, options.wrong)
    own = options.read(NatsOptions, address.query)
    address.context(own, options.wrong)  # unreadable certificate files are an error now
    return NatsSink(
        address,
        Topics(subject, options.topics),
        options.envelope(),
        own,
        timeout=options.timeout,
        wrong=options.wrong,
    )
