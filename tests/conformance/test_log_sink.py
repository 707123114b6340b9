"""log:// passes the conformance suite."""

import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.log import LogLine, open_sink
from penstock.testing.sink_suite import Arrival, SinkEnd, SinkSuite


class LogEnd(SinkEnd, logging.Handler):
    """Reads the lines back."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.lines: list[LogLine] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.msg, LogLine)
        self.lines.append(record.msg)

    async def open(self, options: SinkOptions) -> Sink:
        return await open_sink("log://?payload=true", options)

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        assert len(self.lines) >= number
        return [
            Arrival(
                id=str(line["message_id"]),
                attempt=int(str(line["attempt"])),
                due=str(line["due"]),
                body=str(line["payload"]).encode(),
            )
            for line in self.lines
        ]


class TestLogSink(SinkSuite):
    @pytest.fixture
    async def end(self) -> AsyncIterator[LogEnd]:
        logger = logging.getLogger("penstock.sink.log")
        end, before = LogEnd(), logger.level
        logger.addHandler(end)
        logger.setLevel(logging.INFO)
        yield end
        logger.setLevel(before)
        logger.removeHandler(end)
