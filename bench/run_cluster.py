"""CPU a message on one Redis server and on real Redis Clusters of one, three and six nodes.

All nodes share this machine, so messages a second say nothing here; what a message costs does: as
long as it is the same on six nodes as on one, six machines do six times the work of one. The same
messages, partitions and batches everywhere, in turns; nodes have AOF and no replicas.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

import penstock
from bench.report import Report
from bench.workload import drafts
from penstock.cli.size.plan import Cpu
from systems.servers.redis import RedisCluster, RedisServer

NUMBER = 48_000
PARTITIONS = 24
"""The same for all: four for each of six nodes."""
BATCH = 2_000
ROUTE = {"sink": "python:bench.run_cluster:handle?batch=1000", "settle_ahead": 1_000}
"""Batches as large as those of a broker: a call has some forty messages of its partition."""
ALONE = "one server"
SIZES = (1, 3, 6)
ROUNDS = 3
IDLE_SECONDS = 2.0


PARTS = (
    *("put, the process", "release, the worker"),
    *("put, the nodes", "release, the nodes"),
)
"""As the fields of Cpu."""


@dataclass(frozen=True)
class Place:
    """One server or cluster."""

    name: str
    where: RedisServer | RedisCluster

    @property
    def nodes(self) -> Sequence[RedisServer]:
        return self.where.nodes if isinstance(self.where, RedisCluster) else [self.where]

    def cpu(self) -> float:
        """Seconds of CPU that the nodes have used, in nanosecond steps."""
        return sum(_cpu(node.pid) for node in self.nodes)

    def idle(self) -> float:
        """Seconds of CPU a second that the nodes use when nothing is asked of them."""
        before, start = self.cpu(), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        return (self.cpu() - before) / (time.perf_counter() - start)


def main() -> None:
    report = Report(
        "cluster",
        f"CPU a message, put, claimed and settled, {PARTITIONS} partitions, AOF everysec",
    )
    with ExitStack() as stack:
        places = [Place(ALONE, stack.enter_context(RedisServer(aof=True)))]
        for size in SIZES:
            cluster = stack.enter_context(RedisCluster(primaries=size, replicas=0, aof=True))
            places.append(Place(f"a cluster of {size}", cluster))
        idle = {place.name: place.idle() for place in places}
        costs: dict[str, list[Cpu]] = {place.name: [] for place in places}
        for turn in range(ROUNDS + 1):  # the first warms up
            for place in places:
                place.where.flush()
                cost = uvloop.run(_cost(place, idle[place.name]))
                if turn:
                    costs[place.name].append(cost)
        _add(report, costs, idle)
    report.finish()


def _add(report: Report, costs: dict[str, list[Cpu]], idle: dict[str, float]) -> None:
    smallest = _together(costs[f"a cluster of {SIZES[0]}"])
    for name, found in costs.items():
        columns = zip(*(msgspec.structs.astuple(cost) for cost in found), strict=True)
        for part, column in zip(PARTS, columns, strict=True):
            report.add(f"{name}: {part}", statistics.median(column), "µs a message")
        first = name == f"a cluster of {SIZES[0]}"
        report.add(
            f"{name}: together",
            _together(found),
            "µs a message",
            baseline=None if first else smallest,
            against="" if first else f"a cluster of {SIZES[0]}",
            aim="" if first or name == ALONE else "<= 1.15 x",
        )
        report.add(f"{name}: the nodes when idle", idle[name] * 100, "% of a core")


def _together(found: list[Cpu]) -> float:
    return float(statistics.median(sum(msgspec.structs.astuple(cost)) for cost in found))


class _Sent:
    """Counts what the handler was given."""

    def begin(self) -> None:
        self.number = 0
        self.finished = asyncio.Event()


_sent = _Sent()


async def handle(batch: list[penstock.Message]) -> None:
    _sent.number += len(batch)
    if _sent.number >= NUMBER:
        _sent.finished.set()


async def _cost(place: Place, idle: float) -> Cpu:
    """Put a due backlog and send it to a function that does nothing."""
    url, sizes = place.where.url, {"total_partitions": PARTITIONS, "batch_size": BATCH}
    asked = drafts(NUMBER, delay=0)
    async with penstock.open(url, worker_settings=sizes) as engine:
        meter = _Meter(place, idle)
        await engine.schedule_many(asked)
        put, server_put = meter.read()
    _sent.begin()
    routes = {"default": ROUTE}
    meter = _Meter(place, idle)
    async with penstock.open(url, routes=routes, worker=True, worker_settings=sizes):
        await _sent.finished.wait()
    return Cpu(put, meter.read()[0], server_put, meter.read()[1])


class _Meter:
    """CPU from now on: of this process, and of the nodes without what they use when idle."""

    def __init__(self, place: Place, idle: float) -> None:
        self._place, self._idle = place, idle
        self._own, self._nodes = time.process_time(), place.cpu()
        self._start = time.perf_counter()

    def read(self) -> tuple[float, float]:
        """µs a message."""
        idle = self._idle * (time.perf_counter() - self._start)
        nodes = self._place.cpu() - self._nodes - idle
        return (time.process_time() - self._own) / NUMBER * 1e6, nodes / NUMBER * 1e6


def _cpu(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
