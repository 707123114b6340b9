"""The seam to a receiver of messages.

A sink is a module with `async def open_sink(url: str, options: SinkOptions) -> Sink`. Opening
checks the address and the options (ConfigError) and connects to nothing: a connection is made by
the first send or by check(), so a settings file can be checked where the receiver is not reachable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from penstock.model.envelope import Envelope
from penstock.model.errors import ConfigError, InvalidMessage, PenstockError
from penstock.model.message import Message
from penstock.model.outcome import SendOutcome, StreamEntry
from penstock.ports.options import Own, read_own

PATIENCE = 2.0
"""Seconds within which a side that is there at all answers a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """A route's settings for its sink. Its repr leaves out secrets."""

    route: str = "default"
    timeout: float = 10.0
    """Seconds one send may take."""
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Fixed: sent with every message of the route."""
    topics: tuple[str, ...] = ()
    """Patterns of the destinations that a message may choose."""
    at: str | None = None
    """The setting that names its address; unset: routes.<route>.sink."""
    more: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The route's other settings: a sink reads its own from here, and no other layer knows them."""

    def read(self, own: type[Own], query: str = "") -> Own:
        """A sink's own settings, from the route's table and its URL's query (which wins)."""

        def wrong(reason: str, name: str) -> ConfigError:
            return self.wrong(reason, name or "sink")

        return read_own(own, self.more, query, whose="route", wrong=wrong)

    def envelope(self) -> Envelope:
        try:
            return Envelope(self.headers)
        except InvalidMessage as exc:
            raise self.wrong(exc.reason, exc.field or "headers") from exc

    def wrong(self, reason: str, setting: str = "sink") -> ConfigError:
        """An error that names the setting."""
        where = f"routes.{self.route}.{setting}" if self.at is None else self.at
        return ConfigError(f"{where}: {reason}", field=where)


class Sink(Protocol):
    """Sends batches and returns an outcome for each message."""

    @property
    def name(self) -> str:
        """The sink's address without secrets."""
        ...

    @property
    def max_batch(self) -> int:
        """Messages that one send takes; 1: each message is sent and settled on its own."""
        ...

    @property
    def concurrency(self) -> int:
        """Messages in flight that suit the sink when the route sets no number."""
        ...

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        """Send in order; one outcome each. A crash may repeat the call: same id, higher attempt.

        Delivered only on the receiver's own acknowledgement. Never raises because of the receiver;
        any exception counts as Retry for the whole batch.
        """
        ...

    async def check(self) -> None:
        """Raise PenstockError when the other side cannot be reached; cheap."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class EntrySink(Protocol):
    """A sink whose messages are entries of a stream on a server that may be the store's own."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Host, port and database."""
        ...

    def entry(self, message: Message) -> StreamEntry: ...


async def still_answers(sink: Sink) -> bool:
    """True if the receiver answers a check now.

    After a time-out this distinguishes a message whose answer is late, which concerns that message
    alone, from an unreachable receiver, for which the circuit breaker opens.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            await sink.check()
    except (PenstockError, TimeoutError):
        return False
    return True
