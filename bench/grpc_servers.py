"""The servers bench.run_grpc measures: `python -m bench.grpc_servers KIND FOLDER`, says its port.

penstock   the gRPC API over a SQLite file
memory     the same over a store in memory
bare       grpc.aio with the same messages: reads the request, stores nothing, answers
"""

from __future__ import annotations

import asyncio
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
    """What the library itself costs."""

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
    act, store = KINDS[sys.argv[1]]
    uvloop.run(act(store.format(folder=Path(sys.argv[2]))))
