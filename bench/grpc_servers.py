"""The servers bench.run_grpc measures: `python -m bench.grpc_servers KIND FOLDER [CORE]`.

penstock   the gRPC API over a SQLite file
memory     the same over a store in memory
bare       grpc.aio with the same messages: reads the request, stores nothing, answers

Each says its port. With CORE all of its threads stay on that one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import uvloop

from penstock.api.grpc.server import GrpcServer
from penstock.settings import given
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.scheduler_pb2_grpc import SchedulerServicer, add_SchedulerServicer_to_server
from penstock.wiring import open_parts


class Echo(SchedulerServicer):
    """What the library itself costs, used as its own examples use it."""

    async def Schedule(self, asked: pb.ScheduleRequest, _: Any) -> pb.ScheduleResponse:  # noqa: N802 - the proto's
        return pb.ScheduleResponse(id=asked.id)

    async def ScheduleStream(  # noqa: N802 - the proto's
        self, asked: AsyncIterator[pb.ScheduleRequest], _: Any
    ) -> pb.ScheduleStreamResponse:
        received = 0
        async for _one in asked:
            received += 1
        return pb.ScheduleStreamResponse(received=received, accepted=received)


async def bare(_: str) -> None:
    server = grpc.aio.server()
    add_SchedulerServicer_to_server(Echo(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.Event().wait()


async def serve(store: str) -> None:
    settings = given(store=store, api={"grpc": "127.0.0.1:0"})
    async with open_parts(settings) as parts, GrpcServer(parts) as server:
        print(server.address.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "bare": (bare, ""),
    "memory": (serve, "sqlite://"),
    "penstock": (serve, "sqlite:///{folder}/bench.db"),
}

if __name__ == "__main__":
    kind, at, *core = sys.argv[1:]
    if core:
        os.sched_setaffinity(0, {int(core[0])})
    act, store = KINDS[kind]
    uvloop.run(act(store.format(folder=Path(at))))
