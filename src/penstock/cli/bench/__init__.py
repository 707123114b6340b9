"""`penstock bench`: the speed of this configuration on this machine, and its bottleneck."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli import show
from penstock.cli.loop import loop_factory
from penstock.cli.names import routes
from penstock.cli.session import FAILED, Session, command

if TYPE_CHECKING:
    from penstock.cli.bench.measure import Context, Result

STOPPED = 128 + signal.SIGTERM
"""The exit code that a shell shows for a process ended by SIGTERM."""

Messages = Annotated[
    int, typer.Option("--messages", "-n", min=100, max=10_000_000, help="Messages a measurement.")
]
Size = Annotated[
    int, typer.Option("--payload", min=2, max=262_144, metavar="BYTES", help="Size of a payload.")
]
Clients = Annotated[
    int, typer.Option("--clients", "-c", min=1, max=10_000, help="Single puts at once.")
]
Rate = Annotated[
    int, typer.Option("--rate", min=1, max=100_000, help="Due a second, for lateness.")
]
Seconds = Annotated[
    int, typer.Option("--seconds", min=1, max=3_600, help="How long, for lateness.")
]
To = Annotated[
    str | None,
    typer.Option(
        "--route",
        metavar="ROUTE",
        help="Also deliver to this route's real sink. Its receiver gets every message!",
        autocompletion=routes,
    ),
]


def register(app: typer.Typer) -> None:
    command(app)(bench)


def bench(
    session: Session,
    messages: Messages = 20_000,
    payload: Size = 100,
    clients: Clients = 64,
    rate: Rate = 500,
    seconds: Seconds = 5,
    route: To = None,
) -> None:
    """Measure puts, claims, deliveries and lateness with these settings; say what limits them.

    It runs on a store of its own beside the configured one (SQLite: another file in the same
    folder; Redis: another prefix on the same server), which is removed afterwards. Policies are
    left out. Nothing is sent anywhere unless --route names a route.

    Above the figures stands what they were measured on (with --json: in every line). Lateness
    shows the rate that was delivered; it kept up if that is 95 % of --rate and p99 is at most
    100 ms. The exit code is 1 if messages were not delivered.

    \b
    Examples:
      penstock bench
      penstock bench --config penstock.toml -n 100000 --payload 1000
      penstock bench --route push -n 5000 --json
    """
    from penstock.cli.bench.measure import Plan, context, run

    plan = Plan(messages, payload, clients, rate, seconds, route)
    settings = session.settings()
    results: list[Result] = []

    async def measure() -> None:
        results.extend([result async for result in run(settings, plan, _tell)])

    try:
        _run(measure)
    finally:
        _clear()
    if session.json:
        measured_on = msgspec.structs.asdict(context(settings, plan))
        for result in results:
            show.as_json(msgspec.to_builtins(result) | {"on": measured_on})
    else:
        _show(context(settings, plan), results)
    if any(result.failed for result in results):
        raise typer.Exit(FAILED)


def _run(measure: Callable[[], Awaitable[None]]) -> None:
    """Run to the end or until SIGTERM, which removes the scratch store too, as Ctrl-C does."""
    stopped = False

    async def run() -> None:
        task = asyncio.ensure_future(measure())

        def stop() -> None:
            nonlocal stopped
            if not stopped:  # a second one would break off the cleaning up
                stopped = True
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await task

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run())
    except asyncio.CancelledError:
        if not stopped:
            raise
    if stopped:
        raise typer.Exit(STOPPED)


def _show(context: Context, results: list[Result]) -> None:
    show.as_text(
        f"{context.store}, Penstock {context.penstock}, Python {context.python},"
        f" cores: {context.cores}",
        f"{context.messages:,} messages a measurement, {context.payload:,} bytes each",
        "",
    )
    show.table(
        ("what", ">messages/s", ">p50 ms", ">p99 ms", ">max ms", ">CPU", "limited by"),
        [_row(result) for result in results],
    )


def _row(result: Result) -> tuple[str | None, ...]:
    return (
        result.what,
        f"{result.rate:,.0f}",
        _ms(result.p50),
        _ms(result.p99),
        _ms(result.max),
        f"{result.cpu:.0%}",
        _limit(result),
    )


def _limit(result: Result) -> str:
    if not result.failed:
        return result.limit
    return f"{result.limit}; {result.failed:,} of {result.messages:,} not delivered"


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}"


def _tell(what: str) -> None:
    """Progress, on a terminal's stderr."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[Kmeasuring {what} …")
        sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
