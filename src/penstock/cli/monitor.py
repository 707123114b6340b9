"""`penstock monitor`: the state of the engine and the systems, refreshed regularly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import FAILED, Session, command

if TYPE_CHECKING:
    import asyncio

UpdateInterval = Annotated[
    float | None,
    typer.Option(
        "--update-interval",
        min=0.05,
        metavar="SECONDS",
        help="Seconds between updates [default: MONITOR_UPDATE_INTERVAL, else 5].",
    ),
]
Updates = Annotated[
    int | None, typer.Option("--updates", min=1, help="Stop after so many updates [else: Ctrl-C].")
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        metavar="FILE",
        help="Also write each update to this file, as JSON, rotated [env MONITOR_LOG_FILE].",
    ),
]


def register(app: typer.Typer) -> None:
    command(app, remote=True)(monitor)


def monitor(
    session: Session,
    update_interval: UpdateInterval = None,
    updates: Updates = None,
    log_file: LogFile = None,
) -> None:
    """Show the figures of the engine, live in a terminal.

    The engine is the server at --url, or else the store of the settings. A replaced system whose
    settings are in the environment or .env is shown too; an engine that holds nothing and has
    counted nothing is then left out. With --json, a system that is not watched is null.

    \b
    Examples:
      penstock monitor --update-interval 5
      penstock monitor --url http://127.0.0.1:8700 --json --updates 1
    """
    from penstock.cli.monitor_watch import watch
    from penstock.cli.sim.running import run_until_stopped

    found = True

    async def run(stopping: asyncio.Event) -> None:
        nonlocal found
        found = await watch(session, update_interval, updates, stopping, log_file)

    run_until_stopped(run)
    if not found:
        raise typer.Exit(FAILED)
