"""`penstock sim provider`: something to send webhooks to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command
from penstock.model.errors import ConfigError, InvalidMessage
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.contrib.sender.provider import Answered, Manners, Provider

Host = Annotated[
    str,
    typer.Option(
        "--host", metavar="ADDRESS", help="The address to listen on; 0.0.0.0 in a container."
    ),
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")]
Latency = Annotated[
    str, typer.Option("--latency", metavar="TIME", help="Mean time of an answer: 50ms, 0.05.")
]
FailureRate = Annotated[
    float, typer.Option("--failure-rate", min=0, max=1, help="Share answered 500: 0.02 is 2 %.")
]
RefuseRate = Annotated[
    float,
    typer.Option(
        "--refuse-rate", min=0, max=1, help="Share answered 400, which makes a dead letter."
    ),
]
RateLimit = Annotated[
    float | None,
    typer.Option("--rate-limit", min=0.001, help="Requests per second; more are answered 429."),
]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret", metavar="TEXT", help="Refuse requests that are not signed with it (whsec_…)."
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="No line per request; `Received requests/s: N` every second."),
]
Each = Annotated[
    bool, typer.Option("--each", help="The totals of --json list every accepted request.")
]


def register(app: typer.Typer) -> None:
    command(app)(provider)


def provider(
    session: Session,
    host: Host = "127.0.0.1",
    port: Port = 9000,
    latency: Latency = "0",
    failure_rate: FailureRate = 0.0,
    refuse_rate: RefuseRate = 0.0,
    rate_limit: RateLimit = None,
    secret: Secret = None,
    quiet: Quiet = False,
    each: Each = False,
) -> None:
    """Receive webhooks and print them; GET /stats says what came.

    \b
    Examples:
      penstock sim provider --port 9000
      penstock sim provider --latency 50ms --failure-rate 0.02 --refuse-rate 0.01 --rate-limit 500
      penstock sim provider --quiet --each --json
      curl -s http://127.0.0.1:9000/stats
    """
    from penstock.cli.sim.running import Lines, counting, run_until_stopped
    from penstock.contrib.sender.provider import STAGE, Manners
    from penstock.contrib.sender.provider_lines import as_json, as_text
    from penstock.flow.observe import Observer

    if failure_rate + refuse_rate > 1:
        raise InvalidMessage("--refuse-rate", "is more than --failure-rate leaves")
    manners = Manners(
        latency=parse_duration(latency, "--latency") / 1000,
        failure_rate=failure_rate,
        refuse_rate=refuse_rate,
        rate_limit=rate_limit,
        secret=secret,
    )

    async def run(stopping: asyncio.Event) -> None:
        lines = Lines()

        def tell(answered: Answered) -> None:
            lines.add(as_json(answered) if session.json else as_text(answered))

        observer = Observer()

        def count(_: Answered) -> None:
            observer.count(STAGE, "")

        served = _open(manners, (host, port), count if quiet else tell, each)
        async with served:
            _started(session, served)
            if quiet:
                async with counting(observer, STAGE, "Received requests", stopping, None):
                    await stopping.wait()
            else:
                await stopping.wait()
        lines.flush()
        _ended(session, served)

    run_until_stopped(run)


def _open(
    manners: Manners, at: tuple[str, int], tell: Callable[[Answered], None] | None, each: bool
) -> Provider:
    from penstock.contrib.sender.provider import Provider

    host, port = at
    try:
        return Provider(manners, host=host, port=port, on_answered=tell, each=each)
    except OSError as exc:
        raise ConfigError(f"--port: cannot listen on {host}:{port}: {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(f"--secret: {exc}") from exc


def _started(session: Session, served: Provider) -> None:
    if session.json:
        show.as_json({"event": "started", "url": served.url})
        sys.stdout.flush()
    else:
        show.as_text(f"Taking POST on {served.url} (figures: {served.url}/stats, end: Ctrl-C)")
        sys.stdout.flush()


def _ended(session: Session, served: Provider) -> None:
    stats = served.stats()
    if session.json:
        ended: dict[str, object] = {"event": "stopped", "stats": stats}
        if served.accepted is not None:
            ended |= {"accepted": served.accepted, "arrivals": served.arrivals}
        show.as_json(ended)
        return
    show.as_text(
        f"{stats.requests:,} requests: {stats.accepted:,} accepted ({stats.repeats:,} of them"
        f" repeats), {stats.failed:,} failed, {stats.limited:,} limited, {stats.refused:,} refused"
    )
