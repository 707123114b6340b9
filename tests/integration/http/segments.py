"""Send a request in chosen pieces: each is read by the server before the next one is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.api.http.hot import HotProtocol
from tests.integration.http.conftest import Running

PATIENCE = 300.0


class Reads:
    """How many bytes the server has read, of all connections."""

    def __init__(self) -> None:
        self.size = 0
        self._grown = asyncio.Event()

    def add(self, size: int) -> None:
        self.size += size
        self._grown.set()

    async def reach(self, size: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.size < size:
                self._grown.clear()
                await self._grown.wait()


@contextmanager
def reads_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Count what every connection made in the block reads."""
    reads = Reads()
    receive = HotProtocol.data_received

    def counted(self: HotProtocol, data: bytes) -> None:
        receive(self, data)
        reads.add(len(data))

    with monkeypatch.context() as patch:
        patch.setattr(HotProtocol, "data_received", counted)
        yield reads


async def send_pieces(running: Running, reads: Reads, *pieces: bytes) -> bytes:
    """Everything the server says to a request sent in these pieces, until it closes."""
    reader, writer = await running.connect()
    answer = asyncio.create_task(reader.read())
    for piece in pieces:
        until = reads.size + len(piece)
        writer.write(piece)
        read = asyncio.create_task(reads.reach(until))
        await asyncio.wait({read, answer}, return_when=asyncio.FIRST_COMPLETED)
        read.cancel()
    said = await asyncio.wait_for(answer, PATIENCE)
    writer.close()
    return said


def undated(answer: bytes) -> bytes:
    return re.sub(rb"date: [^\r]+", b"date: -", answer)
