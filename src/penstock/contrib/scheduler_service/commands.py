"""`penstock sim events` and `penstock sim consume-events`: both ends of the scheduler service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command
from penstock.model.errors import ConfigError
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    import asyncio

    from penstock.contrib.scheduler_service.client import Totals
    from penstock.contrib.scheduler_service.consumer import Received, Topics
    from penstock.contrib.ticks.consume import Subscription
    from penstock.settings import Settings

SOURCE = "schedule_events"
TOPICS = ("orders.new", "payments.due")
CHECK_SECONDS = 10.0
DRAIN_SECONDS = 30.0

Grpc = Annotated[
    str | None,
    typer.Option("--grpc", metavar="HOST:PORT", help="The gRPC server [default: api.grpc]."),
]
NamedTopics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Topic of the events; repeatable [default: orders.new …]."),
]
Soonest = Annotated[
    str,
    typer.Option("--from", metavar="TIME", help="Events are due at the earliest in this time …"),
]
Latest = Annotated[
    str, typer.Option("--to", metavar="TIME", help="… and at the latest in this time.")
]
Rate = Annotated[float, typer.Option("--rate", min=0.01, help="Most events per second.")]
Duration = Annotated[
    str | None, typer.Option("--duration", metavar="TIME", help="Stop after this [else: Ctrl-C].")
]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many.")]
AtOnce = Annotated[
    int, typer.Option("--at-once", min=1, max=10_000, help="Calls at the same time.")
]
Wait = Annotated[
    str,
    typer.Option(
        "--wait", metavar="TIME", help="How long to wait for a server that does not listen yet."
    ),
]
Group = Annotated[str, typer.Option("--group", help="The consumer group.")]
Consumed = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="Another topic to consume besides the route's own; repeatable, and ^… is a pattern"
        " [default: what the route's `topics` allow].",
    ),
]


def register(app: typer.Typer) -> None:
    command(app)(events)
    command(app, "consume-events")(consume_events)


def events(
    session: Session,
    grpc: Grpc = None,
    topic: NamedTopics = None,
    soonest: Soonest = "65s",
    latest: Latest = "2m",
    rate: Rate = 100.0,
    duration: Duration = None,
    count: Count = None,
    at_once: AtOnce = 200,
    wait: Wait = "30s",
) -> None:
    """Schedule events by gRPC (penstock.v1 and scheduler.v1) and by Kafka; logs their rate.

    Each way takes every third event; the topic is where the source `schedule_events` of the
    settings reads. Every 20th is sent again by another way, and every 10th is cancelled, unless
    it went by Kafka. PENSTOCK_TOKEN and PENSTOCK_CA are used where the server wants them.

    \b
    Examples:
      penstock sim events --duration 60s
      penstock sim events --from 2s --to 10s --rate 50 --topic orders.new --json
    """
    from penstock.sim.errors import client_library

    client_library("grpc", "grpc")
    client_library("confluent_kafka", "kafka")
    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.contrib.scheduler_service.client import STAGE, Client, Load
    from penstock.flow.observe import Observer

    settings = session.settings()
    load = Load(
        grpc=grpc or settings.api.grpc,
        records=_records(settings),
        topics=topic or TOPICS,
        token=session.token,
        ca=_authorities(session.ca),
        soonest=parse_duration(soonest, "--from") / 1000,
        latest=parse_duration(latest, "--to") / 1000,
        rate=rate,
        count=count,
        at_once=at_once,
        wait=parse_duration(wait, "--wait") / 1000,
    )
    if load.latest < load.soonest:
        raise ConfigError("--to: must not be less than --from")
    seconds = None if duration is None else parse_duration(duration, "--duration") / 1000

    async def run(stopping: asyncio.Event) -> None:
        observer = Observer()
        client = Client(load, observer)
        async with counting(observer, STAGE, "Scheduled events", stopping, seconds) as clock:
            clock.on_stop(client.stop)
            totals = await client.run()
        _scheduled(session, totals, clock.elapsed())

    run_until_stopped(run)


def consume_events(
    session: Session,
    topic: Consumed = None,
    group: Group = "penstock-sim-events",
    duration: Duration = None,
) -> None:
    """Consume what the route `events` sends to Kafka and check every event; logs the rate.

    The brokers are those of the route. When stopped, it first takes what is on the topics by
    then. Records that the source `schedule_events` refused are read from its dead letter.

    \b
    Examples:
      penstock sim consume-events
      penstock sim consume-events --topic orders.new --topic payments.due --json
    """
    from penstock.sim.errors import client_library

    client_library("confluent_kafka", "kafka")
    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.contrib.scheduler_service.consumer import STAGE, EventConsumer
    from penstock.flow.observe import Observer

    topics = _topics(session.settings(), topic, group)
    seconds = None if duration is None else parse_duration(duration, "--duration") / 1000

    async def run(stopping: asyncio.Event) -> None:
        import asyncio

        observer = Observer()
        async with counting(observer, STAGE, "Consumed events", stopping, seconds) as clock:
            consumer = EventConsumer(topics, observer)
            consumer.check(CHECK_SECONDS)
            try:
                while not stopping.is_set():
                    await asyncio.to_thread(consumer.look)
                await asyncio.to_thread(consumer.drain, DRAIN_SECONDS)
            finally:
                consumer.close()
        _consumed(session, consumer.totals(), clock.elapsed())

    run_until_stopped(run)


def _records(settings: Settings) -> Subscription:
    """The topic that the source `schedule_events` reads."""
    from penstock.contrib.ticks.consume import subscription
    from penstock.ports.sink import SinkOptions

    source = settings.sources.get(SOURCE)
    if source is None or not source.from_.startswith("kafka:"):
        raise ConfigError(f"sources.{SOURCE}: the settings have no such source from Kafka")
    options = SinkOptions(at=f"sources.{SOURCE}.from", more=source.model_extra or {})
    return subscription(source.from_, "", options)


def _topics(settings: Settings, named: list[str] | None, group: str) -> Topics:
    from penstock.contrib.scheduler_service import EVENTS
    from penstock.contrib.scheduler_service.consumer import Topics
    from penstock.contrib.ticks.consume import subscription
    from penstock.model.topics import expression
    from penstock.ports.sink import SinkOptions

    route = settings.routes.get(EVENTS)
    if route is None or not route.sink.startswith("kafka:"):
        raise ConfigError(f"routes.{EVENTS}: the settings have no such route to Kafka")
    where = subscription(route.sink, group, route.as_sink_options(EVENTS))
    source = settings.sources.get(SOURCE)
    refusals = None
    if source is not None and (source.dead_letter or "").startswith("kafka:"):
        at = SinkOptions(at=f"sources.{SOURCE}.dead_letter")
        refusals = subscription(source.dead_letter or "", group, at).topic
    patterns = [f"^{expression(pattern)}$" for pattern in route.topics]
    return Topics(where=where, named=named or patterns, refusals=refusals)


def _authorities(file: str | None) -> bytes | None:
    try:
        return None if file is None else Path(file).read_bytes()
    except OSError as exc:
        raise ConfigError(f"--ca: cannot read {file}: {exc.strerror}") from exc


def _scheduled(session: Session, totals: Totals, seconds: float) -> None:
    rate = totals.scheduled / seconds if seconds else 0.0
    if session.json:
        show.as_json({"totals": totals, "seconds": round(seconds, 3), "rate": round(rate, 1)})
        return
    ways = ", ".join(f"{name} {way.scheduled:,}" for name, way in totals.ways.items())
    show.as_text(
        f"{totals.scheduled:,} events in {seconds:,.1f} s ({rate:,.0f}/s): {ways}",
        f"{totals.repeated:,} sent again, {totals.cancelled:,} cancelled,"
        f" {totals.refused:,} refused, {totals.unsure:,} without an answer",
    )


def _consumed(session: Session, totals: Received, seconds: float) -> None:
    if session.json:
        show.as_json({"totals": totals, "seconds": round(seconds, 3)})
        return
    late = ", ".join(f"{name} {ms} ms" for name, ms in totals.lateness_ms.items())
    show.as_text(
        f"{totals.consumed:,} events in {seconds:,.1f} s, {totals.early:,} early,"
        f" {totals.repeats:,} repeats, {totals.misplaced:,} on another topic",
        f"lateness: {late}",
    )
