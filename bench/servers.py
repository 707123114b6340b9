"""The servers the HTTP benchmarks measure: `python -m bench.servers KIND FOLDER`, prints its port.

penstock   the HTTP API over a SQLite file
ordinary   the same without the hot way: every request goes through ASGI
redis      the HTTP API over the Redis whose URL stands in the environment as BENCH_REDIS
worker     the API over a SQLite file and a worker: what `penstock serve` runs
bare       uvicorn's own protocol answering a constant of the same size, storing nothing
asgi       a bare ASGI handler on uvicorn that does the same
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bench.granian_limit import ANSWER
from bench.granian_limit import asgi as constant
from penstock.api.http.hot import HotRoutes
from penstock.api.http.server import HttpServer
from penstock.settings import given
from penstock.wiring import open_parts, open_worker

HEAD = (
    b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(ANSWER)
)


def free_socket() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    return sock


class BareProtocol(HttpToolsProtocol):
    """Reads the request, stores nothing, answers a constant."""

    def on_headers_complete(self) -> None:
        """No scope, no task."""

    def on_body(self, body: bytes) -> None:
        """Not looked at."""

    def on_message_complete(self) -> None:
        self.transport.write(HEAD + ANSWER)


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """Never called: the protocol answers."""


async def bare(_: Path) -> None:
    config = uvicorn.Config(
        _nothing, http=BareProtocol, ws="none", lifespan="off", log_level="warning"
    )
    await uvicorn.Server(config).serve(sockets=[free_socket()])


async def asgi(_: Path) -> None:
    config = uvicorn.Config(
        constant, ws="none", lifespan="off", log_level="warning", access_log=False
    )
    await uvicorn.Server(config).serve(sockets=[free_socket()])


async def serve(at: Path) -> None:
    await _api(f"sqlite:///{at}/bench.db")


async def redis(_: Path) -> None:
    await _api(os.environ["BENCH_REDIS"])


async def _api(store: str) -> None:
    settings = given(store=store, api={"http": "127.0.0.1:0"})
    async with open_parts(settings) as parts, HttpServer(parts) as server:
        print(server.address[1], flush=True)
        await asyncio.Event().wait()


async def ordinary(at: Path) -> None:
    """The API with its hot way switched off: no address is found there."""
    vars(HotRoutes)["find"]  # an API that has no such method is not measured by mistake
    HotRoutes.find = lambda *_: None  # type: ignore[method-assign]
    await serve(at)


async def everything(at: Path) -> None:
    settings = given(store=f"sqlite:///{at}/bench.db", api={"http": "127.0.0.1:0"})
    async with (
        open_parts(settings) as parts,
        open_worker(parts) as worker,
        HttpServer(parts, worker) as server,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(worker.run())
        print(server.address[1], flush=True)
        await asyncio.Event().wait()


KINDS: dict[str, Callable[[Path], Any]] = {
    "bare": bare,
    "asgi": asgi,
    "penstock": serve,
    "ordinary": ordinary,
    "redis": redis,
    "worker": everything,
}

if __name__ == "__main__":
    uvloop.run(KINDS[sys.argv[1]](Path(sys.argv[2])))
