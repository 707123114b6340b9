"""`penstock sim crowd`: visitors of a waiting room."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import FAILED, Session, command
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.sim.crowd import CrowdSimulation, CrowdTotals

DEFAULT_URL = "http://127.0.0.1:8700"
REPORT_SECONDS = 1.0

RoomArgument = Annotated[str, typer.Argument(metavar="ROOM", help="The room to visit.")]
Users = Annotated[int, typer.Option("--users", min=1, max=1_000_000, help="How many come.")]
Within = Annotated[
    str, typer.Option("--within", metavar="TIME", help="Time over which the visitors arrive.")
]
Abandon = Annotated[
    float, typer.Option("--abandon", min=0, max=1, help="Share that gives up while waiting.")
]
Patience = Annotated[
    str, typer.Option("--patience", metavar="TIME", help="Mean time that these visitors wait.")
]
Stay = Annotated[
    str, typer.Option("--session", metavar="TIME", help="Mean time that a visitor stays inside.")
]
Capacity = Annotated[
    int | None,
    typer.Option("--capacity", min=0, help="Slots to give the room [else: as it is; 100 if new]."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="The same draws every time.")]


def register(app: typer.Typer) -> None:
    command(app, remote=True)(crowd)


def crowd(
    session: Session,
    room: RoomArgument = "sale",
    users: Users = 1_000,
    within: Within = "10s",
    abandon: Abandon = 0.1,
    patience: Patience = "5s",
    stay: Stay = "2s",
    capacity: Capacity = None,
    seed: Seed = None,
) -> None:
    """Send a crowd to a waiting room over HTTP, and show the room at work.

    Visitors line up, ask when told to, enter with their token, stay, and leave. Some give up:
    half of them say so, the others vanish. Ends when the last has gone, or on Ctrl-C.

    \b
    Examples:
      penstock sim crowd sale --users 2000 --capacity 100 --within 20s
      penstock sim crowd sale --abandon 0.3 --session 5s --json --url http://127.0.0.1:8700
    """
    import random

    from penstock.cli.sim.running import run_until_stopped
    from penstock.sdk.async_client import AsyncClient
    from penstock.sim.crowd import Crowd, CrowdSimulation

    coming = Crowd(
        room=room,
        users=users,
        within=parse_duration(within, "--within") / 1000,
        abandon=abandon,
        patience=parse_duration(patience, "--patience") / 1000,
        stay=parse_duration(stay, "--session") / 1000,
        capacity=capacity,
    )
    url = session.url or DEFAULT_URL
    done: list[CrowdTotals] = []

    async def run(stopping: asyncio.Event) -> None:
        async with AsyncClient(url, token=session.token, ca=session.ca) as client:
            simulation = CrowdSimulation(coming, client, chance=random.Random(seed))
            with _reporting(room) as report:
                await _until_done(simulation, stopping, report)
            done.append(simulation.finished())

    run_until_stopped(run)
    for totals in done:
        _totals_line(session, totals)
        if totals.capacity and totals.most_inside > totals.capacity:
            print("penstock: more slots were in use than the room has", file=sys.stderr)
            raise typer.Exit(FAILED)


async def _until_done(
    simulation: CrowdSimulation, stopping: asyncio.Event, report: Callable[[CrowdTotals], None]
) -> None:
    """Run the simulation, reporting once a second, until it ends or is stopped."""
    import asyncio

    running = asyncio.ensure_future(simulation.run())
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        while not running.done() and not stopped.done():
            await asyncio.wait(
                [running, stopped],
                timeout=REPORT_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            report(simulation.totals)
        if running.done():
            running.result()
    finally:
        for task in (running, stopped):
            task.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)


@contextmanager
def _reporting(room: str) -> Iterator[Callable[[CrowdTotals], None]]:
    """A bar that moves on a terminal, a line a second elsewhere; on stderr either way."""
    if not sys.stderr.isatty():
        yield lambda totals: print(f"{room}: {_line(totals)}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[how]}")
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(room, total=None, how="")

        def update(totals: CrowdTotals) -> None:
            gone = totals.arrived - totals.waiting - totals.inside
            progress.update(bar, total=totals.users, completed=gone, how=_line(totals))

        yield update


def _line(totals: CrowdTotals) -> str:
    gone = totals.gave_up + totals.vanished
    return (
        f"{totals.arrived:,} of {totals.users:,} arrived, {totals.waiting:,} waiting,"
        f" {totals.inside:,} inside, {totals.left:,} left, {gone:,} gave up"
    )


def _totals_line(session: Session, totals: CrowdTotals) -> None:
    if session.json:
        show.as_json(totals)
        return
    show.table(
        ("what", ">how many"),
        [
            ("arrived", f"{totals.arrived:,}"),
            ("were inside and left", f"{totals.left:,}"),
            ("still inside", f"{totals.inside:,}"),
            ("still waiting", f"{totals.waiting:,}"),
            ("gave up and said so", f"{totals.gave_up:,}"),
            ("vanished", f"{totals.vanished:,}"),
            ("put out or refused", f"{totals.lost:,}"),
            ("slots in use at most", f"{totals.most_inside:,} of {totals.capacity:,}"),
            *((f"wait {name}", f"{ms / 1000:,.1f} s") for name, ms in totals.wait_ms.items()),
            *((f"refused: {code}", f"{n:,}") for code, n in totals.errors.items()),
        ],
    )
