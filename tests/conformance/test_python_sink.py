"""Functions of every kind pass the conformance suite: sync, async, one by one, in batches."""

from collections.abc import Callable, Sequence

import pytest

from penstock.model.message import Message
from penstock.model.times import format_moment
from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.python import python_sink
from penstock.testing.sink_suite import Arrival, KeyedSinkSuite, SinkEnd


class FunctionEnd(SinkEnd):
    """Notes what its function is called with."""

    def __init__(self, function: Callable[[list[Message]], Callable[..., object]]) -> None:
        self._messages: list[Message] = []
        self._function = function(self._messages)

    async def open(self, options: SinkOptions) -> Sink:
        return python_sink(self._function, envelope=options.envelope())

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        assert len(self._messages) >= number
        return [
            Arrival(
                id=m.id,
                attempt=m.attempt,
                due=format_moment(m.due),
                body=m.payload,
                content_type=m.content_type,
                headers=m.headers or {},
                key=m.key,
            )
            for m in self._messages
        ]


def sync_one(seen: list[Message]) -> Callable[..., object]:
    def handle(message: Message) -> None:
        seen.append(message)

    return handle


def sync_batch(seen: list[Message]) -> Callable[..., object]:
    def handle(messages: list[Message]) -> bool:
        seen.extend(messages)
        return True

    return handle


def async_one(seen: list[Message]) -> Callable[..., object]:
    async def handle(message: Message) -> None:
        seen.append(message)

    return handle


def async_batch(seen: list[Message]) -> Callable[..., object]:
    async def handle(messages: Sequence[Message]) -> list[bool]:
        seen.extend(messages)
        return [True] * len(messages)

    return handle


class TestPythonSink(KeyedSinkSuite):
    @pytest.fixture(params=[sync_one, sync_batch, async_one, async_batch])
    async def end(self, request: pytest.FixtureRequest) -> FunctionEnd:
        return FunctionEnd(request.param)
