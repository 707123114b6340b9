"""The promises of every sink, as tests: a new sink must pass them.

    class TestKafkaSink(RemoteSinkSuite):
        @pytest.fixture
        async def end(self) -> AsyncIterator[KafkaEnd]: ...

SinkSuite holds for any sink, WireSinkSuite for those that hand the whole message over, and
RemoteSinkSuite for those whose other side can be away, hang, or break off.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest

from penstock.model.errors import PenstockError
from penstock.model.message import JSON, Message
from penstock.model.outcome import DELIVERED, Dead, Delivered, Retry, SendOutcome
from penstock.model.times import parse_moment
from penstock.ports.sink import Sink, SinkOptions
from penstock.testing.poison import INNOCENTS, MESSAGES

DUE = 1_893_456_000_123
"""2030-01-01T00:00:00.123Z"""
OPTIONS = SinkOptions(route="suite", timeout=30.0, headers={"x-fixed": "the route's own"})
OPEN_TO_ALL = replace(OPTIONS, topics=(">",))
"""Options that let a message choose any destination."""
IMPATIENT = replace(OPTIONS, timeout=0.3)
"""Options with a short timeout, for a receiver that hangs."""
TRIES = 100
"""Sends, 0.1 s apart, within which a sink must have recovered."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A message as received."""

    id: str
    attempt: int
    due: str
    body: bytes
    content_type: str = ""
    headers: Mapping[str, str] = {}
    key: str = ""


class SinkEnd(ABC):
    """The receiver behind the sink under test."""

    secrets: tuple[str, ...] = ()
    """Secrets of its address that must never be shown."""

    @abstractmethod
    async def open(self, options: SinkOptions) -> Sink:
        """Open a new sink to this receiver (which may add options); the suite closes it."""

    @abstractmethod
    async def arrivals(self, number: int) -> Sequence[Arrival]:
        """Everything that arrived, in order, once there are at least that many."""


class RemoteEnd(SinkEnd):
    """A receiver that can misbehave. Every fault lasts until `recover`."""

    @abstractmethod
    async def leave(self) -> None:
        """Refuse connections, as if no receiver existed."""

    @abstractmethod
    async def hang(self) -> None:
        """Accept messages and never answer."""

    @abstractmethod
    async def cut(self) -> None:
        """Break every connection off instead of answering."""

    @abstractmethod
    async def recover(self) -> None:
        """Work again, at the same address."""


def message(
    number: int = 1,
    *,
    payload: bytes = b'{"n":1}',
    attempt: int = 1,
    headers: dict[str, str] | None = None,
    content_type: str = JSON,
    message_id: str | None = None,
    key: str = "key",
) -> Message:
    return Message(
        id=message_id or f"m-{number}",
        route="suite",
        key=key,
        payload=payload,
        due=DUE,
        attempt=attempt,
        headers=headers,
        content_type=content_type,
        claimed=DUE + 3,
    )


async def send(sink: Sink, messages: Sequence[Message]) -> list[SendOutcome]:
    """Send as the flow does: in batches of the sink's size."""
    size = sink.max_batch
    outcomes: list[SendOutcome] = []
    for start in range(0, len(messages), size):
        outcomes += await sink.send(messages[start : start + size])
    return outcomes


def _beside(number: int, poison: Message) -> list[Message]:
    """The poison between innocents."""
    innocents = [
        message(n, message_id=f"innocent-{number}-{n}", payload=b"%d" % n) for n in range(INNOCENTS)
    ]
    return [*innocents[: INNOCENTS // 2], poison, *innocents[INNOCENTS // 2 :]]


def _arriving(
    name: str, poison: Message, batch: Sequence[Message], outcomes: Sequence[SendOutcome]
) -> int:
    """Number of the batch's messages that will arrive, after a check that no innocent suffered."""
    own = dict(zip((one.id for one in batch), outcomes, strict=True))
    outcome = own.pop(poison.id)
    hurt = {one: said for one, said in own.items() if said != DELIVERED}
    assert not hurt, f"beside the poison {name!r} ({outcome}): {hurt}"
    is_final = isinstance(outcome, Delivered | Dead)
    may_come = poison.topic is not None and outcome == Retry(getattr(outcome, "error", ""))
    assert is_final or may_come, f"the poison {name!r} is tried again: {outcome}"
    return len(own) + (outcome == DELIVERED and poison.topic is None)


def _check_innocents(batches: Sequence[Sequence[Message]], arrivals: Sequence[Arrival]) -> None:
    poison = {one.id for one in MESSAGES.values()}
    sent = sorted((one.id, 1) for batch in batches for one in batch if one.id not in poison)
    assert sorted((a.id, a.attempt) for a in arrivals if a.id.startswith("innocent-")) == sent


class SinkSuite:
    """Tests for every sink."""

    @pytest.fixture
    async def end(self) -> SinkEnd:
        raise NotImplementedError("a suite's subclass brings the fixture `end`")

    @pytest.fixture
    async def sink(self, end: SinkEnd) -> AsyncIterator[Sink]:
        sink = await end.open(OPTIONS)
        yield sink
        await sink.close()

    @pytest.fixture
    async def open_to_all(self, end: SinkEnd) -> AsyncIterator[Sink]:
        sink = await end.open(OPEN_TO_ALL)
        yield sink
        await sink.close()

    async def test_a_message_is_delivered(self, sink: Sink, end: SinkEnd) -> None:
        assert await sink.send([message()]) == [DELIVERED]
        (arrival,) = await end.arrivals(1)
        assert arrival.id == "m-1"
        assert arrival.body == b'{"n":1}'

    async def test_every_message_of_a_batch_gets_an_outcome_and_arrives_in_order(
        self, sink: Sink, end: SinkEnd
    ) -> None:
        batch = [message(n, payload=b"%d" % n) for n in range(50)]
        assert await send(sink, batch) == [DELIVERED] * 50
        arrived = await end.arrivals(50)
        assert [(a.id, a.body) for a in arrived] == [(m.id, m.payload) for m in batch]

    async def test_an_empty_batch_sends_nothing(self, sink: Sink, end: SinkEnd) -> None:
        assert list(await sink.send([])) == []
        await sink.send([message(7)])
        assert [a.id for a in await end.arrivals(1)] == ["m-7"]

    async def test_a_repeat_has_the_same_id_and_a_higher_attempt(
        self, sink: Sink, end: SinkEnd
    ) -> None:
        await sink.send([message(attempt=1)])
        await sink.send([message(attempt=2)])
        arrived = await end.arrivals(2)
        assert [(a.id, a.attempt) for a in arrived] == [("m-1", 1), ("m-1", 2)]

    async def test_it_is_told_when_it_was_due(self, sink: Sink, end: SinkEnd) -> None:
        await sink.send([message()])
        (arrival,) = await end.arrivals(1)
        assert arrival.due == "2030-01-01T00:00:00.123Z"
        assert parse_moment(arrival.due) == DUE

    async def test_text_of_any_script_arrives(self, sink: Sink, end: SinkEnd) -> None:
        text = '{"text":"Grüße, 你好, مرحبا, 🚰"}'.encode()
        await sink.send([message(payload=text)])
        (arrival,) = await end.arrivals(1)
        assert arrival.body == text

    async def test_an_empty_payload_arrives_empty(self, sink: Sink, end: SinkEnd) -> None:
        assert await sink.send([message(payload=b"")]) == [DELIVERED]
        (arrival,) = await end.arrivals(1)
        assert arrival.body == b""

    async def test_the_largest_payload_arrives_whole(self, sink: Sink, end: SinkEnd) -> None:
        payload = b'"' + b"x" * (256 * 1024 - 2) + b'"'
        assert await sink.send([message(payload=payload)]) == [DELIVERED]
        (arrival,) = await end.arrivals(1)
        assert arrival.body == payload

    async def test_many_sends_at_once_arrive_once_each(self, sink: Sink, end: SinkEnd) -> None:
        sends = [sink.send([message(n)]) for n in range(300)]
        assert await asyncio.gather(*sends) == [[DELIVERED]] * 300
        arrived = await end.arrivals(300)
        assert sorted(a.id for a in arrived) == sorted(f"m-{n}" for n in range(300))

    async def test_no_poison_hurts_the_messages_beside_it(
        self, open_to_all: Sink, end: SinkEnd
    ) -> None:
        """Each of the catalogue in a batch with innocents: these arrive once, at attempt 1."""
        batches = [_beside(number, one) for number, one in enumerate(MESSAGES.values())]
        expected = 0
        for (name, one), batch in zip(MESSAGES.items(), batches, strict=True):
            expected += _arriving(name, one, batch, await send(open_to_all, batch))
        _check_innocents(batches, await end.arrivals(expected))

    async def test_no_poison_hurts_the_messages_sent_at_the_same_time(
        self, open_to_all: Sink, end: SinkEnd
    ) -> None:
        batches = [_beside(number, one) for number, one in enumerate(MESSAGES.values())]
        answers = await asyncio.gather(*(send(open_to_all, batch) for batch in batches))
        expected = sum(map(_arriving, MESSAGES, MESSAGES.values(), batches, answers))
        _check_innocents(batches, await end.arrivals(expected))

    async def test_check_passes_while_the_other_side_is_there(self, sink: Sink) -> None:
        await sink.check()

    async def test_closing_twice_is_closing_once(self, end: SinkEnd) -> None:
        sink = await end.open(OPTIONS)
        await sink.send([message()])
        await sink.close()
        await sink.close()

    async def test_it_says_how_much_it_takes(self, sink: Sink) -> None:
        assert sink.max_batch >= 1
        assert sink.concurrency >= 1

    async def test_its_name_shows_no_secret(self, sink: Sink, end: SinkEnd) -> None:
        assert sink.name
        assert not [word for word in end.secrets if word in sink.name]


class WireSinkSuite(SinkSuite):
    """Tests for sinks that pass the whole message on."""

    async def test_every_byte_arrives_as_it_was(self, sink: Sink, end: SinkEnd) -> None:
        payload = bytes(range(256)) * 4
        await sink.send([message(payload=payload, content_type="application/octet-stream")])
        (arrival,) = await end.arrivals(1)
        assert arrival.body == payload
        assert arrival.content_type == "application/octet-stream"

    async def test_json_is_said_to_be_json(self, sink: Sink, end: SinkEnd) -> None:
        await sink.send([message()])
        (arrival,) = await end.arrivals(1)
        assert arrival.content_type == JSON

    async def test_the_callers_headers_arrive(self, sink: Sink, end: SinkEnd) -> None:
        await sink.send([message(headers={"x-trace": "a b", "x-town": "Zürich 🚰"})])
        (arrival,) = await end.arrivals(1)
        assert arrival.headers["x-trace"] == "a b"
        assert arrival.headers["x-town"] == "Zürich 🚰"

    async def test_the_routes_headers_arrive_and_no_caller_replaces_them(
        self, sink: Sink, end: SinkEnd
    ) -> None:
        await sink.send([message(1)])
        await sink.send([message(2, headers={"X-Fixed": "mine"})])
        arrived = await end.arrivals(2)
        assert {a.headers["x-fixed"] for a in arrived} == {"the route's own"}

    async def test_a_long_id_of_odd_characters_arrives(self, sink: Sink, end: SinkEnd) -> None:
        odd = "".join(chr(code) for code in range(33, 127)) + "x" * 106
        await sink.send([message(message_id=odd)])
        (arrival,) = await end.arrivals(1)
        assert arrival.id == odd


class KeyedSinkSuite(WireSinkSuite):
    """Tests for sinks whose wire format has a key (brokers)."""

    async def test_the_key_arrives(self, sink: Sink, end: SinkEnd) -> None:
        await sink.send([message(key="клиент 17")])
        (arrival,) = await end.arrivals(1)
        assert arrival.key == "клиент 17"


class RemoteSinkSuite(WireSinkSuite):
    """Tests for sinks whose receiver can fail."""

    hanging_is_unreachable = True
    """True if a receiver that hangs answers no check either; False for time-outs of one message."""

    async def test_when_nobody_is_there_it_says_unreachable(
        self, sink: Sink, end: RemoteEnd
    ) -> None:
        await end.leave()
        (outcome,) = await sink.send([message()])
        assert isinstance(outcome, Retry)
        assert outcome.unreachable

    async def test_when_nobody_is_there_every_message_is_to_be_retried(
        self, sink: Sink, end: RemoteEnd
    ) -> None:
        await end.leave()
        outcomes = await send(sink, [message(n) for n in range(5)])
        assert [type(outcome) for outcome in outcomes] == [Retry] * 5

    async def test_check_fails_when_nobody_is_there(self, sink: Sink, end: RemoteEnd) -> None:
        await end.leave()
        with pytest.raises(PenstockError):
            await sink.check()

    async def test_a_side_that_hangs_is_given_up(self, end: RemoteEnd) -> None:
        sink = await end.open(IMPATIENT)
        assert await delivered_at_last(sink, message(1))  # however long a connection takes
        await end.hang()
        (outcome,) = await sink.send([message(2)])
        await sink.close()
        assert isinstance(outcome, Retry)
        assert outcome.unreachable is self.hanging_is_unreachable
        assert outcome.may_have_arrived

    async def test_a_connection_cut_before_the_answer_is_not_a_delivery(
        self, sink: Sink, end: RemoteEnd
    ) -> None:
        await sink.send([message(1)])
        await end.cut()
        (outcome,) = await sink.send([message(2)])
        assert isinstance(outcome, Retry)

    @pytest.mark.parametrize("trouble", ["leave", "hang", "cut"])
    async def test_it_finds_its_way_back(self, end: RemoteEnd, trouble: str) -> None:
        sink = await end.open(IMPATIENT)
        await sink.send([message(1)])
        await {"leave": end.leave, "hang": end.hang, "cut": end.cut}[trouble]()
        assert isinstance((await sink.send([message(2)]))[0], Retry)
        await end.recover()
        assert await delivered_at_last(sink, message(2, attempt=2))
        await sink.close()

    async def test_a_send_broken_off_leaves_the_sink_usable(
        self, sink: Sink, end: RemoteEnd
    ) -> None:
        await end.hang()
        under_way = asyncio.ensure_future(sink.send([message(1)]))
        await end.arrivals(1)
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        await end.recover()
        assert await delivered_at_last(sink, message(2))

    async def test_its_errors_show_no_secret(self, sink: Sink, end: RemoteEnd) -> None:
        await end.leave()
        shown = str(await sink.send([message()]))
        with pytest.raises(PenstockError) as caught:
            await sink.check()
        shown += str(caught.value)
        assert not [word for word in end.secrets if word in shown]


async def delivered_at_last(sink: Sink, sent: Message) -> bool:
    for _ in range(TRIES):
        if await sink.send([sent]) == [DELIVERED]:
            return True
        await asyncio.sleep(0.1)
    return False
