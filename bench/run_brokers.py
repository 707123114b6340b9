"""A due backlog in Redis → each broker, by one worker and two; beside its client library bare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import broker_limits
from bench.processes import penstock
from bench.report import Report
from bench.sqlite_limits import folder
from bench.workload import messages
from penstock.model.message import Message, NewMessage
from penstock.model.state import State
from penstock.settings import Settings, load
from penstock.wiring import open_store
from systems.servers.kafka import KafkaServer, kafka_jars
from systems.servers.nats import NatsServer
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer

NUMBER = 30_000
BATCH = 1_000
WARM = 0.1
"""Share of the backlog that is not measured: workers wake up and fill their pipelines."""
CONFIG = """
store = "{store}"
[worker]
batch_size = 1000
[routes.out]
sink = "{sink}"
"""

Bare = Callable[[Sequence[Message]], Coroutine[object, object, float]]


@dataclass(frozen=True)
class Broker:
    """A running one: where our sink goes, and how its own client sends."""

    sink: str
    """With {} for a name that is new each time."""
    bare: Bare


def main() -> None:
    report = Report("brokers", f"{NUMBER:,} due messages from Redis (AOF) to each broker")
    for name, start in BROKERS.items():
        with folder() as at, start(at) as broker:
            _measure(report, name, broker, at)
    report.finish()


def _measure(report: Report, name: str, broker: Broker, at: Path) -> None:
    # Twice, and the better one: the first meets a broker that has only just started.
    bare = max(uvloop.run(broker.bare(_as_sent(messages(NUMBER, ahead=0)))) for _ in range(2))
    report.add(f"{name}: its client library bare", bare, "messages/s")
    for workers in (1, 2):
        with RedisServer(aof=True) as redis:
            rate = _ours(broker, redis.url, at, workers)
        report.add(
            f"{name}: through Penstock, {workers} worker{'s' if workers > 1 else ''}",
            rate,
            "messages/s",
            baseline=bare,
            against="client library bare",
            aim=">= 0.25 x, 20,000/s" if (name, workers) == ("kafka", 2) else ">= 0.25 x",
        )


def _as_sent(made: Sequence[NewMessage]) -> list[Message]:
    fields = ("id", "route", "key", "payload", "due")
    return [Message(**{name: getattr(one, name) for name in fields}, attempt=1) for one in made]


def _ours(broker: Broker, store: str, at: Path, workers: int) -> float:
    config = at / f"penstock{workers}.toml"
    config.write_text(CONFIG.format(store=store, sink=broker.sink.format(f"ours{workers}")))
    settings = load(config)
    uvloop.run(_fill(settings))
    with ExitStack() as stack:
        for number in range(workers):
            words = ("worker", "--config", str(config))
            running = stack.enter_context(penstock(at, f"worker{workers}-{number}", *words))
            running.wait_for("holds messages in")
        return uvloop.run(_drained(settings))


async def _fill(settings: Settings) -> None:
    """The backlog, on a route that is paused until everybody is ready."""
    store = (await open_store(settings)).messages
    await store.pause("out", True)
    made = messages(NUMBER, ahead=0, route="out")
    for start in range(0, NUMBER, BATCH):
        await store.put(made[start : start + BATCH], store.clock.now())
    await store.close()


async def _drained(settings: Settings) -> float:
    """Messages a second from the first tenth to the last message."""
    store = (await open_store(settings)).messages
    await store.pause("out", False)
    first: tuple[float, int] | None = None
    while True:
        states = (await store.figures(store.clock.now())).states
        left, now = states[State.SCHEDULED] + states[State.LEASED], time.perf_counter()
        if first is None and left <= NUMBER * (1 - WARM):
            first = (now, left)
        if left == 0:
            break
        await asyncio.sleep(0.02)
    await store.close()
    assert first is not None
    return first[1] / (now - first[0])


@contextmanager
def _kafka(at: Path) -> Iterator[Broker]:
    jars = kafka_jars()
    if jars is None:
        raise RuntimeError("Kafka is not there: run scripts/install-servers")
    server = KafkaServer(at / "kafka", jars)
    server.start()
    try:
        server.create_topic("bare", 8)
        sink = f"kafka://{server.address}/{{}}?create_topic=true&partitions=8"
        yield Broker(sink, lambda made: broker_limits.kafka(server.address, "bare", made))
    finally:
        server.stop()


@contextmanager
def _rabbitmq(at: Path) -> Iterator[Broker]:
    server = RabbitServer(at / "rabbitmq")
    server.start()
    try:
        sink = f"rabbitmq://{server.address}/{{}}?create_topic=true"
        yield Broker(sink, lambda made: broker_limits.rabbitmq(server.url, "bare", made))
    finally:
        server.kill()


@contextmanager
def _nats(at: Path) -> Iterator[Broker]:
    server = NatsServer(at / "nats")
    server.start()
    try:
        sink = f"{server.url}/{{}}?create_topic=true"
        yield Broker(sink, lambda made: broker_limits.jetstream(server.url, "bare", made))
    finally:
        server.stop()


@contextmanager
def _redis(_at: Path) -> Iterator[Broker]:
    with RedisServer(aof=True) as server:
        bare = server.url
        yield Broker(
            f"{server.url}/{{}}", lambda made: broker_limits.redis_stream(bare, "bare", made)
        )


BROKERS = {"kafka": _kafka, "rabbitmq": _rabbitmq, "nats": _nats, "redis streams": _redis}
