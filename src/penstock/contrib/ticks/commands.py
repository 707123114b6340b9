"""`penstock sim generate` and `penstock sim consume`: both ends of the ticks system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command
from penstock.model.errors import ConfigError
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    import asyncio

    from penstock.contrib.ticks.consume import Consumed, Subscription, TickConsumer
    from penstock.contrib.ticks.generate import Generator
    from penstock.settings import Settings

DEFAULT_BROKERS, DEFAULT_TOPIC = "127.0.0.1:9092", "ticks"
CHECK_SECONDS = 10.0
DRAIN_SECONDS = 30.0
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, and how to reach it

Within = Annotated[
    str,
    typer.Option("--within", metavar="TIME", help="Ticks are due between now and this time ahead."),
]
Items = Annotated[int, typer.Option("--items", min=1, max=1_000_000, help="Different item ids.")]
Duration = Annotated[
    str | None, typer.Option("--duration", metavar="TIME", help="Stop after this [else: Ctrl-C].")
]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many.")]
Connections = Annotated[
    int, typer.Option("--connections", min=1, max=4096, help="Connections open at the same time.")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.01, help="Most ticks per second [default: as many as possible]."),
]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        metavar="HOST:PORT,…",
        help="Kafka's bootstrap servers, or kafka://user:password@host:port/topic?tls=true"
        " with all that a route's address may say [default: 127.0.0.1:9092]",
    ),
]
Topic = Annotated[str | None, typer.Option("--topic", help="The topic to consume [default: ticks]")]
Of = Annotated[
    str | None,
    typer.Option(
        "--route",
        metavar="NAME",
        help="Consume the topic of this route of the settings, with its login and TLS.",
    ),
]
Distinct = Annotated[
    bool,
    typer.Option("--distinct", help="Remember every id, to count messages without repeats."),
]
Drain = Annotated[
    bool,
    typer.Option(
        "--drain", help="When stopped, first consume the messages on the topic at that time."
    ),
]
Chunked = Annotated[
    bool, typer.Option("--chunked", help="POST /tick with chunked bodies and no content type.")
]
Pause = Annotated[
    str,
    typer.Option(
        "--pause", metavar="TIME", help="How long each connection pauses after an answer."
    ),
]
Wait = Annotated[
    str,
    typer.Option(
        "--wait", metavar="TIME", help="How long to wait for a server that does not listen yet."
    ),
]
Group = Annotated[str, typer.Option("--group", help="The consumer group.")]


def register(app: typer.Typer) -> None:
    command(app, remote=True)(generate)
    command(app)(consume)


def generate(
    session: Session,
    within: Within = "10m",
    duration: Duration = None,
    connections: Connections = 64,
    rate: Rate = None,
    count: Count = None,
    items: Items = 1_000_000,
    chunked: Chunked = False,
    pause: Pause = "0s",
    wait: Wait = "10s",
) -> None:
    """POST random ticks to a server; logs `Generated ticks/s: N` every second.

    Without --url the server is the one of the settings: `api.http`.

    \b
    Examples:
      penstock sim generate --url http://127.0.0.1:8700 --duration 60s
      penstock sim generate --within 30s --rate 5000 --connections 32
      penstock sim generate --connections 200 --chunked --pause 5ms
    """
    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.contrib.ticks.generate import STAGE, Generator, Load
    from penstock.flow.observe import Observer

    load = Load(
        url=session.url or api_url(session.settings()),
        token=session.token,
        ca=session.ca,
        items=items,
        within=parse_duration(within, "--within") / 1000,
        connections=connections,
        rate=rate,
        count=count,
        chunked=chunked,
        pause=parse_duration(pause, "--pause") / 1000,
        wait=parse_duration(wait, "--wait") / 1000,
    )
    seconds = None if duration is None else parse_duration(duration, "--duration") / 1000

    async def run(stopping: asyncio.Event) -> None:
        observer = Observer()
        generator = Generator(load, observer)
        async with counting(observer, STAGE, "Generated ticks", stopping, seconds) as clock:
            clock.on_stop(generator.stop)
            await generator.run()
        _generated(session, generator, clock.elapsed())

    run_until_stopped(run)


def consume(
    session: Session,
    brokers: Brokers = None,
    topic: Topic = None,
    group: Group = "penstock-sim",
    route: Of = None,
    duration: Duration = None,
    count: Count = None,
    distinct: Distinct = False,
    drain: Drain = False,
) -> None:
    """Consume from Kafka; logs `Consumed items/s: N` every second, and at the end how late it was.

    Lateness is from the header `penstock-due`, which everything has that Penstock sends, or a
    tick's own `at`.

    \b
    Examples:
      penstock sim consume --brokers 127.0.0.1:9092 --topic ticks
      penstock sim consume --route ticks
    """
    from penstock.sim.errors import client_library

    client_library("confluent_kafka", "kafka")
    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.contrib.ticks.consume import STAGE, TickConsumer
    from penstock.flow.observe import Observer

    seconds = None if duration is None else parse_duration(duration, "--duration") / 1000
    where = _subscription(session, brokers, topic, route, group)

    async def run(stopping: asyncio.Event) -> None:
        import asyncio

        observer = Observer()
        consumer = TickConsumer(where, observer, distinct=distinct)
        consumer.check(CHECK_SECONDS)
        try:
            async with counting(observer, STAGE, "Consumed items", stopping, seconds) as clock:
                while not stopping.is_set():
                    await asyncio.to_thread(consumer.look)
                    if count is not None and observer.total(STAGE) >= count:
                        break
                if drain and not await asyncio.to_thread(consumer.drain, DRAIN_SECONDS):
                    show.as_text(f"more came than could be taken in {DRAIN_SECONDS:.0f} s")
        finally:
            consumer.close()
        _consumed(session, consumer, clock.elapsed())

    run_until_stopped(run)


def _subscription(
    session: Session, brokers: str | None, topic: str | None, route: str | None, group: str
) -> Subscription:
    from penstock.contrib.ticks.consume import subscription
    from penstock.ports.sink import SinkOptions

    if route is not None:
        if brokers is not None or topic is not None:
            raise ConfigError("--route: it names brokers and topic already")
        found = session.settings().all_routes().get(route)
        if found is None or not found.sink.startswith("kafka:"):
            raise ConfigError(f"--route: {route!r} is no route to Kafka in the settings")
        return subscription(found.sink, group, found.as_sink_options(route))
    url = brokers or DEFAULT_BROKERS
    if "://" not in url:
        url = f"kafka://{url}/{topic or DEFAULT_TOPIC}"
    elif topic is not None or not url.startswith("kafka:"):
        raise ConfigError("--brokers: must be host:port, or kafka://… without --topic")
    return subscription(url, group, SinkOptions(at="--brokers"))


def api_url(settings: Settings) -> str:
    """The address of these settings' API."""
    from penstock.api.access import split_host_port
    from penstock.api.http.listen import url_of

    api = settings.api
    host, port = split_host_port(api.http)
    return url_of(ANY.get(host, host), port, "http" if api.tls_cert is None else "https")


def _generated(session: Session, generator: Generator, seconds: float) -> None:
    totals = generator.totals
    rate = totals.generated / seconds if seconds else 0.0
    if session.json:
        show.as_json({"totals": totals, "seconds": round(seconds, 3), "rate": round(rate, 1)})
        return
    show.as_text(
        f"{totals.generated:,} ticks in {seconds:,.1f} s ({rate:,.0f}/s),"
        f" {totals.failed:,} failed, {totals.unknown:,} unknown"
    )


def _consumed(session: Session, consumer: TickConsumer, seconds: float) -> None:
    totals = consumer.totals()
    if session.json:
        show.as_json({"totals": totals, "seconds": round(seconds, 3)})
        return
    show.as_text(
        f"{totals.consumed:,} consumed in {seconds:,.1f} s, {totals.early:,} early,"
        f" {totals.repeats:,} repeats",
        f"lateness: {lateness(totals)}",
    )


def lateness(totals: Consumed) -> str:
    """Lateness as text, or why it is unknown."""
    if totals.consumed == totals.without_due:
        return "unknown: nothing that came has a due time" if totals.consumed else "nothing came"
    late = ", ".join(f"{name} {ms} ms" for name, ms in totals.lateness_ms.items())
    if not totals.without_due:
        return late
    return f"{late}; unknown of {totals.without_due:,} that have no due time"
