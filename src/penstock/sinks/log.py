"""log:// — one structured line per message, through the logger `penstock.sink.log`.

The payload is logged only with log://?payload=true.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, SendOutcome
from penstock.model.times import format_moment
from penstock.model.trace import correlation_of
from penstock.ports.sink import Sink, SinkOptions

log = logging.getLogger("penstock.sink.log")

MAX_BATCH = 500


class LogOptions(msgspec.Struct, frozen=True):
    payload: bool = False
    """Also log the payload."""


def lateness(message: Message) -> int | None:
    """Milliseconds from due to its claim, by the store's clock; None before a claim."""
    return None if message.claimed is None else message.claimed - message.due


class LogLine(dict[str, object]):
    """A record's fields; as text, `name=value` pairs, for loggers that are not structured."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.items() if value is not None)


class LogSink:
    name = "log://"
    max_batch = MAX_BATCH
    concurrency = 4 * MAX_BATCH

    def __init__(self, *, payload: bool = False) -> None:
        self._payload = payload

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if log.isEnabledFor(logging.INFO):
            for message in batch:
                log.info(self._line(message))
        return [DELIVERED] * len(batch)

    def _line(self, message: Message) -> LogLine:
        line = LogLine(
            event="message",
            message_id=message.id,
            route=message.route,
            key=message.key,
            attempt=message.attempt,
            due=format_moment(message.due),
            late_ms=lateness(message),
            size=len(message.payload),
        )
        if message.headers and (correlation := correlation_of(message.headers)) is not None:
            line["correlation_id"] = correlation
        if self._payload:
            line["payload"] = message.payload.decode(errors="backslashreplace")
        return line

    async def check(self) -> None:
        """Always succeeds: there is no connection."""

    async def close(self) -> None:
        """Does nothing: there is no connection."""


async def open_sink(url: str, options: SinkOptions) -> Sink:
    parts = urlsplit(url)
    if parts.netloc or parts.path.strip("/"):
        raise options.wrong("log:// takes no address; only ?payload=true")
    options.envelope()  # fixed headers that could not be sent are an error here too
    return LogSink(payload=options.read(LogOptions, parts.query).payload)
