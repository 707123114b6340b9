"""The whole ticks system on this machine: POST /ticks → Redis → Kafka, each part a process.

Its predecessor published 15,500 ticks a second on about ten busy cores; what can be compared here
is ticks a second for a core kept busy. The predecessor's own way of calling is run too: 200
callers, chunked bodies without a content type, each caller pausing 5 ms. And so many a second:
`python -m bench ticks [--original] [--rate 5000 …] [--seconds 45]` runs these ways alone.
"""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from bench.processes import Running, cpu, penstock
from bench.report import Report
from bench.sqlite_limits import folder
from systems.servers.kafka import KafkaServer, kafka_jars
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer

SECONDS = float(os.environ.get("BENCH_SECONDS", "45"))
WITHIN = 5
"""Ticks are due within so many seconds: from then on as many come due as come in."""
PUBLISHED, PUBLISHED_CORES = 15_500, 10
WORKERS = 1
OURS = ("--connections", "128")
THEIRS = ("--connections", "200", "--chunked", "--pause", "5ms")
ORIGINAL = ", called as the predecessor was"
RATES = (5_000, 2_000)
PART_AIMS = {"Redis": "<= 45", "worker 1": "<= 45", "api": "<= 50"}
"""µs of CPU a tick, at RATES[0] …"""
LATE_AIMS = {"p99": "<= 50"}
"""… and ms from due to consumed, at RATES[1]."""
CONFIG = """
store = "{store}"
[api]
http = "127.0.0.1:{port}"
[worker]
batch_size = 1000
[routes.ticks]
sink = "kafka://{kafka}/ticks"
create_topic = true
partitions = 8
"""


def main(*words: str) -> None:
    asked = ArgumentParser(prog="python -m bench ticks", description=__doc__)
    asked.add_argument("--original", action="store_true", help="as the predecessor was called")
    asked.add_argument("--rate", type=int, action="append", default=[], help="ticks a second")
    asked.add_argument("--seconds", type=float, default=SECONDS, help="of each way")
    given = asked.parse_args(words)
    ways: list[tuple[Sequence[str], str]] = [(THEIRS, ORIGINAL)] if given.original else []
    ways += [_paced(rate) for rate in given.rate]
    whole = not ways
    if whole:
        ways = [(OURS, ""), (THEIRS, ORIGINAL), *map(_paced, RATES)]
    report = Report("ticks", f"the whole ticks system for {given.seconds:.0f} s, Redis with AOF")
    for calling, way in ways:
        with ticks_system(given.seconds) as system:
            _run(report, system, calling, way)
    report.finish(keep=whole)


def _paced(rate: int) -> tuple[Sequence[str], str]:
    return (*OURS, "--rate", str(rate)), f", {rate:,}/s"


@contextmanager
def ticks_system(seconds: float) -> Iterator[TicksSystem]:
    """Everything but the generator, which will run for so long."""
    jars = kafka_jars()
    if jars is None:
        raise RuntimeError("Kafka is not there: run scripts/install-servers")
    with folder() as at, ExitStack() as stack:
        redis = stack.enter_context(RedisServer(aof=True))
        kafka = KafkaServer(at / "kafka", jars)
        kafka.start()
        stack.callback(kafka.stop)
        port = free_port()
        config = CONFIG.format(store=redis.url, kafka=kafka.address, port=port)
        (at / "penstock.toml").write_text(config)
        yield TicksSystem(stack, at, kafka.address, port, seconds)


class TicksSystem:
    """Its processes, and what they cost."""

    def __init__(self, stack: ExitStack, at: Path, kafka: str, port: int, seconds: float) -> None:
        self.seconds = seconds
        self._stack = stack
        self._at = at
        self._kafka = kafka
        self._url = f"http://127.0.0.1:{port}"
        self.api = self._start("api", "api")
        self.workers = [self._start(f"worker{n + 1}", "worker") for n in range(WORKERS)]
        self.api.wait_for("dashboard")
        for worker in self.workers:
            worker.wait_for("holds messages in")
        self.consumer = self._start(
            *("consume", "sim", "consume", "--brokers", kafka, "--json"),
            *("--duration", str(seconds + WITHIN + 60)),
        )

    def generate(self, words: Sequence[str] = OURS) -> Running:
        return self._start(
            *("generate", "sim", "generate", "--url", self._url, "--json"),
            *("--within", f"{WITHIN}s", "--duration", str(self.seconds)),
            *words,
        )

    def processes(self, generator: Running) -> dict[str, psutil.Process]:
        named = {"generator": generator.usage, "api": self.api.usage}
        named |= {f"worker {n}": one.usage for n, one in enumerate(self.workers, 1)}
        named["consumer"] = self.consumer.usage
        for process in psutil.Process().children():
            if (name := process.name()) in {"java", "redis-server"}:
                named["Kafka" if name == "java" else "Redis"] = process
        return named

    def _start(self, name: str, *words: str) -> Running:
        return self._stack.enter_context(penstock(self._at, name, *words))


def _run(report: Report, system: TicksSystem, words: Sequence[str], way: str) -> None:
    generator = system.generate(words)
    time.sleep(WITHIN + 2)  # from here on it is steady
    processes = system.processes(generator)
    before = {name: cpu(process) for name, process in processes.items()}
    start = time.perf_counter()
    time.sleep(max(1.0, system.seconds - WITHIN - 4))
    elapsed = time.perf_counter() - start
    cores = {name: (cpu(process) - before[name]) / elapsed for name, process in processes.items()}
    generated = json.loads(generator.ended())
    _wait_until_drained(system)
    system.consumer.stop()
    consumed = json.loads(system.consumer.out.read_text())["totals"]
    scheduled = [_rates(worker, "Scheduled items/s") for worker in system.workers]
    report.add(f"generated{way}", generated["rate"], "ticks/s")
    report.add(f"scheduled (released by the workers){way}", sum(map(_steady, scheduled)), "items/s")
    rate = _steady(_rates(system.consumer, "Consumed items/s"))
    report.add(
        f"consumed{way}", rate, "items/s", baseline=PUBLISHED, against="published, ten busy cores"
    )
    paced = way == _paced(RATES[0])[1]
    for name, used in cores.items():
        report.add(f"CPU of {name}{way}", used, "cores")
        aim = PART_AIMS.get(name, "") if paced else ""
        report.add(f"CPU of {name} a tick{way}", used / rate * 1e6, "µs", aim=aim)
    busy = sum(cores.values())
    report.add(
        f"consumed for a busy core{way}",
        rate / busy,
        "items/s",
        baseline=PUBLISHED / PUBLISHED_CORES,
        against="published, for a busy core",
    )
    lost = generated["totals"]["generated"] - consumed["consumed"]
    report.add(f"generated and not consumed{way}", lost, "ticks", aim="0")
    report.add(f"early{way}", consumed["early"], "ticks", aim="0")
    for name, ms in consumed["lateness_ms"].items():
        aim = LATE_AIMS.get(name, "") if way == _paced(RATES[1])[1] else ""
        report.add(f"due to consumed, {name}{way}", ms, "ms", aim=aim)


def _wait_until_drained(system: TicksSystem) -> None:
    """Until nothing was consumed for three seconds."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < 3:
        number = len(_rates(system.consumer, "Consumed items/s"))
        if number != seen:
            seen, since = number, time.monotonic()
        time.sleep(0.1)


def _rates(process: Running, what: str) -> list[int]:
    """Every second's figure, as the process logged it."""
    return [int(found) for found in re.findall(rf"{what}: (\d+)", process.err.read_text())]


def _steady(rates: list[int]) -> float:
    """The mean without the seconds in which it began and ended."""
    middle = rates[WITHIN + 2 : -(WITHIN + 2)] or rates
    return sum(middle) / len(middle)
