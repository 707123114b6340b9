"""A Receiver in a process of its own, for tests in which everything else may be killed.

    python -m penstock.sim.receiver_process --record received.ndjson

prints its address, then appends a JSON line for every request before it is answered. A PUT of a
Reply as JSON to /_reply changes how it answers from then on; such requests are not recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from penstock.sim.requests import Received

CONTROL = "/_reply"


class ReceiverProcess:
    """A handle on the process; what it received is read from its record."""

    def __init__(self, url: str, record: Path, process: asyncio.subprocess.Process) -> None:
        self.url = url
        self.record = record
        self.process = process

    async def always(self, reply: Reply) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.put(self.url + CONTROL, data=msgspec.json.encode(reply)) as response,
        ):
            response.raise_for_status()

    def received(self) -> list[Received]:
        """Every request so far; a last line that is not complete yet is left out."""
        whole, _, _ = self.record.read_bytes().rpartition(b"\n")
        return [msgspec.json.decode(line, type=Received) for line in whole.splitlines()]


@asynccontextmanager
async def run_receiver(record: Path, *, port: int = 0) -> AsyncIterator[ReceiverProcess]:
    """Start the process, and end it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock.sim.receiver_process"),
        *("--record", str(record), "--port", str(port)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None, "it was asked for"  # noqa: S101 - for the type
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise RuntimeError("the receiver did not start")
        yield ReceiverProcess(url, record, process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


class _Controlled(Receiver):
    """A receiver that records into a file and is configured over HTTP."""

    def __init__(self, record: Path, port: int) -> None:
        super().__init__(port=port)
        self._record = record.open("ab", buffering=0)

    async def take(self, request: Received) -> Reply:
        if request.path == CONTROL:
            try:
                self.always(msgspec.json.decode(request.body, type=Reply))
            except msgspec.MsgspecError as exc:
                return Reply(status=400, body=str(exc))
            return Reply(status=204, body="")
        self._record.write(msgspec.json.encode(request) + b"\n")
        reply = await super().take(request)
        self.received.clear()  # the file has it: the process may run for hours
        return reply

    def close(self) -> None:
        self._record.close()


async def _serve(record: Path, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    receiver = _Controlled(record, port)
    async with receiver:
        sys.stdout.write(receiver.url + "\n")
        sys.stdout.flush()
        await stop.wait()
    receiver.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Receives webhooks and records them.")
    parser.add_argument("--record", type=Path, required=True, help="append what comes here")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    given = parser.parse_args()
    asyncio.run(_serve(given.record, given.port))


if __name__ == "__main__":
    main()
