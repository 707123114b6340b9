"""The messages between one of several processes on a port and the process that started them.

Lines of JSON over a pair of sockets. Its end means that the other side has ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from penstock.telemetry.metrics import Family

log = logging.getLogger("penstock.process")

MAX_LINE = 1 << 26
"""Bytes: the metrics of all processes are one line."""
PATIENCE = 2.0
"""Seconds after which metrics are returned without the processes that have not answered."""


class Begin(msgspec.Struct, tag="begin", frozen=True, kw_only=True):
    """Tells a process what to serve."""

    number: int
    """The number of this process, from 1."""
    config: str | None
    overrides: dict[str, Any]
    """The settings that the command line overrides."""
    worker: bool
    insecure: bool
    listener: int
    """The file descriptor of the socket that it takes HTTP connections from."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Sent once the process listens, with its lines for the start of the log."""

    lines: list[str]
    facts: dict[str, Any]


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """The process that serves /metrics requests the metrics of all processes …"""

    number: int


class Collect(msgspec.Struct, tag="collect", frozen=True):
    """… each process is asked for its own …"""

    number: int


class Told(msgspec.Struct, tag="told", frozen=True):
    """… and answers with them …"""

    number: int
    families: msgspec.Raw


class Collected(msgspec.Struct, tag="collected", frozen=True):
    """… and the first one gets all of them."""

    number: int
    processes: dict[str, msgspec.Raw]


Line: TypeAlias = Begin | Ready | Ask | Collect | Told | Collected
encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def send(writer: asyncio.StreamWriter, line: Line) -> None:
    if not writer.is_closing():
        writer.write(encode(line) + b"\n")


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[Line]:
    """Yield lines until the other side has ended."""
    with suppress(ConnectionError):
        while line := await reader.readline():
            yield _decode(line)


class Place:
    """One of several processes that share the ports of the API, as it sees itself."""

    def __init__(self, begin: Begin, channel: socket.socket) -> None:
        self.number = begin.number
        self.listener = socket.socket(fileno=begin.listener)
        self.families: Callable[[], list[Family]] = list
        """The metrics of this process, once it serves."""
        self._channel = channel
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[dict[str, msgspec.Raw]]] = {}

    @asynccontextmanager
    async def joined(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Answer requests while the block runs; `stopping` is set when the parent process ends."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=MAX_LINE)
        following = asyncio.get_running_loop().create_task(self._follow(reader, stopping))
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])
            self._writer.close()

    def ready(self, said: list[str], facts: dict[str, Any]) -> None:
        """Report to the parent process that this one listens."""
        self._send(Ready(said, facts))

    async def everyone(self) -> Mapping[str, list[Family]]:
        """The metrics of all processes, by their numbers; of this one alone if they are late."""
        from penstock.telemetry.metrics import Family

        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(Ask(number))
        try:
            async with asyncio.timeout(2 * PATIENCE):
                processes = await answer
        except TimeoutError:
            return {str(self.number): self.families()}
        finally:
            del self._asked[number]
        read = msgspec.json.Decoder(list[Family]).decode
        return {name: read(told) for name, told in processes.items()}

    async def _follow(self, reader: asyncio.StreamReader, stopping: asyncio.Event) -> None:
        async for line in lines(reader):
            match line:
                case Collect(number):
                    self._send(Told(number, msgspec.Raw(encode(self.families()))))
                case Collected(number, processes) if number in self._asked:
                    if not self._asked[number].done():
                        self._asked[number].set_result(processes)
        if not stopping.is_set():
            log.warning("the process that started this one has ended: this one stops too")
            stopping.set()

    def _send(self, line: Line) -> None:
        if self._writer is not None:
            send(self._writer, line)
