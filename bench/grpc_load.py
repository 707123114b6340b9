"""A load generator for gRPC, as a process of its own: `python -m bench.grpc_load PORT HOW SECONDS`.

unary    64 calls under way at once, over four connections
stream   one stream on each of two connections, as fast as they take it
flood    the same two streams, by a client that is not what limits them (bench.grpc_flood)
batch    500 messages in each ScheduleBatch, one call under way on each of two connections
Prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc
import uvloop
from google.protobuf.duration_pb2 import Duration

from bench.grpc_flood import flood
from penstock.model.identity import IdMaker
from penstock.v1 import scheduler_pb2 as pb

CALLS, CONNECTIONS, STREAMS = 64, 4, 2
BATCH = 500
WARM_UP = 0.5
SERVICE = "/penstock.v1.Scheduler"
BODY = b'{"user":"user-000042","text":"%s"}' % (b"x" * 72)


class Load:
    def __init__(self, seconds: float) -> None:
        self.ends = time.perf_counter() + WARM_UP + seconds
        self.begins = time.perf_counter() + WARM_UP
        self.done = 0
        self.made = 0
        self._ids = IdMaker(Random())

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self.ends

    def message(self) -> bytes:
        """A fresh one, already written: what a client does before is not what is measured."""
        self.made += 1
        made = self._ids.make(time.time_ns() // 1_000_000)
        asked = pb.ScheduleRequest(
            id=made, payload=BODY, content_type="application/json", delay=Duration(seconds=3600)
        )
        return asked.SerializeToString()

    def count(self, number: int = 1) -> None:
        if time.perf_counter() >= self.begins:
            self.done += number

    def next(self) -> bytes | None:
        """A message that counts; None: it is over."""
        if self.over:
            return None
        self.count()
        return self.message()


async def unary(channel: grpc.aio.Channel, load: Load) -> None:
    call: Any = channel.unary_unary(f"{SERVICE}/Schedule")
    while not load.over:
        await call(load.message())
        load.count()


async def stream(channel: grpc.aio.Channel, load: Load) -> None:
    """Counted when it is written; the answer at the end is waited for and must have them all."""
    call: Any = channel.stream_unary(f"{SERVICE}/ScheduleStream")()
    sent = 0
    while not load.over:
        await call.write(load.message())
        load.count()
        sent += 1
    await call.done_writing()
    _check(sent, await call)


async def flooded(port: int, load: Load) -> None:
    _check(*await flood(port, f"{SERVICE}/ScheduleStream", load.next))


async def batch(channel: grpc.aio.Channel, load: Load) -> None:
    call: Any = channel.unary_unary(f"{SERVICE}/ScheduleBatch")
    while not load.over:
        # A batch on the wire is its messages, each after a tag and a length of two bytes.
        written = [load.message() for _ in range(BATCH)]
        body = b"".join(b"\x0a%c%c%b" % (len(m) & 0x7F | 0x80, len(m) >> 7, m) for m in written)
        answer = pb.ScheduleBatchResponse.FromString(await call(body))
        if sum(outcome.HasField("accepted") for outcome in answer.outcomes) != BATCH:
            raise RuntimeError(f"not all were accepted: {answer.outcomes[0]}")
        load.count(BATCH)


def _check(sent: int, answer: bytes) -> None:
    came = pb.ScheduleStreamResponse.FromString(answer)
    if came.accepted != sent:
        raise RuntimeError(f"{sent} were sent: {came}")


async def run(port: int, how: str, seconds: float) -> tuple[Load, float]:
    channels = [
        # One connection each: channels to one address share theirs unless they differ.
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=(("bench.number", number),))
        for number in range(CONNECTIONS if how == "unary" else STREAMS)
    ]
    load = Load(seconds)
    if how == "unary":
        work = [unary(channels[i % CONNECTIONS], load) for i in range(CALLS)]
    elif how == "flood":
        work = [flooded(port, load) for _ in channels]
    else:
        work = [(batch if how == "batch" else stream)(channel, load) for channel in channels]
    await asyncio.gather(*work)
    rate = load.done / (time.perf_counter() - load.begins)  # the last answers are part of it
    for channel in channels:
        await channel.close()
    return load, rate


@dataclass(frozen=True)
class Hammered:
    """What one run came to."""

    rate: float
    """Messages a second, durable where the server stores."""
    sent: int
    """Messages in all, those of the warm-up too."""
    cpu: float
    """Seconds of CPU the load generator itself took."""


def hammer(port: int, how: str, seconds: float = 1.5) -> Hammered:
    done = subprocess.run(
        [sys.executable, "-m", "bench.grpc_load", str(port), how, str(seconds)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-1000:])
    return Hammered(**json.loads(done.stdout))


if __name__ == "__main__":
    port, how, seconds = sys.argv[1:4]
    began = time.process_time()
    load, rate = uvloop.run(run(int(port), how, float(seconds)))
    cpu = time.process_time() - began
    print(json.dumps({"rate": rate, "sent": load.made, "cpu": cpu}))
