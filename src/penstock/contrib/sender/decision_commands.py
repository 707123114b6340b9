"""`penstock sim decisions`: the decision maker in front of the sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command
from penstock.contrib.ticks.commands import Count, Duration
from penstock.model.errors import ConfigError
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    import asyncio

    from penstock.contrib.sender.decisions import Totals
    from penstock.settings import Settings

Of = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="Publish to the topic of this source of the settings [default: the one that takes"
        " decision batches]",
    ),
]
Rate = Annotated[
    float,
    typer.Option("--rate", min=0, help="Notifications per second; 0: as many as the broker takes."),
]
Items = Annotated[int, typer.Option("--items", min=1, max=1000, help="Notifications in a batch.")]
Defer = Annotated[
    str, typer.Option("--defer", metavar="TIME", help="How far ahead a DEFER is at most.")
]
Receivers = Annotated[int, typer.Option("--receivers", min=1, help="Different receivers.")]
Busy = Annotated[
    int, typer.Option("--busy", min=0, help="Receivers who also get a tenth of all notifications.")
]
Method = Annotated[str, typer.Option("--method", help="sendPush, sendEmail, sendSms …")]
Each = Annotated[bool, typer.Option("--each", help="The totals list every notification.")]


def register(app: typer.Typer) -> None:
    command(app)(decisions)


def decisions(
    session: Session,
    source: Of = None,
    rate: Rate = 50,
    items: Items = 20,
    duration: Duration = None,
    count: Count = None,
    defer: Defer = "3s",
    receivers: Receivers = 100_000,
    busy: Busy = 10,
    method: Method = "sendPush",
    each: Each = False,
) -> None:
    """Publish decision batches to the broker of a source; logs `Decisions/s: N` every second.

    Every third batch is DEFER, some are BLOCK or DROP, the others ALLOW. A few notifications have
    several receivers, a few have expired. A batch counts when the broker has confirmed it; while
    the broker is away it is published again and again.

    \b
    Examples:
      penstock sim decisions --duration 60s
      penstock sim decisions --rate 500 --items 100 --defer 2m --json
      penstock --config examples/sender-nats/penstock.toml sim decisions --source decisions
    """
    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.contrib.sender.decisions import STAGE, DecisionMaker, Plan
    from penstock.flow.observe import Observer
    from penstock.wiring.sources import publisher_to

    settings = session.settings()
    name = source or _source(settings)
    if name not in settings.sources:
        raise ConfigError(f"--source: there is no source {name!r} in the settings")
    plan = Plan(
        rate=rate or None,
        items=items,
        count=count,
        defer=parse_duration(defer, "--defer") / 1000,
        receivers=receivers,
        busy=busy,
        method=method,
        each=each,
    )
    seconds = None if duration is None else parse_duration(duration, "--duration") / 1000

    async def run(stopping: asyncio.Event) -> None:
        observer = Observer()
        sink = await publisher_to(settings.sources[name], name)
        try:
            maker = DecisionMaker(plan, sink, observer)
            async with counting(observer, STAGE, "Decisions", stopping, seconds) as clock:
                clock.on_stop(maker.stop)
                totals = await maker.run()
        finally:
            await sink.close()
        _ended(session, totals, clock.elapsed())

    run_until_stopped(run)


def _source(settings: Settings) -> str:
    """The one source that takes decision batches."""
    found = [name for name, one in settings.sources.items() if one.format == "decision-batch"]
    if len(found) != 1:
        known = ", ".join(found) or "none"
        raise ConfigError(
            f"--source: say which; sources of the settings that take decision batches: {known}"
        )
    return found[0]


def _ended(session: Session, totals: Totals, seconds: float) -> None:
    if session.json:
        show.as_json({"totals": totals, "seconds": round(seconds, 3)})
        return
    by_verdict = ", ".join(f"{number:,} {verdict}" for verdict, number in totals.verdicts.items())
    show.as_text(
        f"{totals.items:,} notifications in {totals.batches:,} batches in {seconds:,.1f} s:"
        f" {by_verdict or 'none'}",
        f"{totals.several:,} with several receivers, {totals.expired:,} expired,"
        f" {totals.repeated:,} batches repeated, {totals.unknown:,} unknown",
    )
