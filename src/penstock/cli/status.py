"""`penstock status`: the current state of the engine, on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from penstock.cli import show
from penstock.cli.routes import show_routes
from penstock.cli.session import FAILED, Session, command
from penstock.model.state import State

if TYPE_CHECKING:
    from penstock.cli.show import Shown
    from penstock.model.status_view import Readiness, Stats


def register(app: typer.Typer) -> None:
    command(app, remote=True)(status)


async def status(session: Session) -> None:
    """Show the store, the processes on it, messages by state and every route.

    Exit 1 when the store or the server cannot take messages now.

    \b
    Examples:
      penstock status
      penstock status --url http://127.0.0.1:8700 --json
    """
    async with session.verbs() as verbs:
        health, stats, routes = await verbs.health(), await verbs.stats(), await verbs.routes()
    if session.json:
        show.as_json({"ready": health.status == "ready", **msgspec.to_builtins(stats)})
    else:
        show.facts(_facts(session, health, stats))
        show.as_text("")
        show_routes(routes, session.times)
    if health.status != "ready":
        raise typer.Exit(FAILED)


def _facts(session: Session, health: Readiness, stats: Stats) -> list[tuple[str, Shown]]:
    ready = show.Cell("yes", "ok") if health.status == "ready" else show.Cell("no", "failed")
    path = health.facts.get("path")
    facts: list[tuple[str, Shown]] = [
        ("penstock", stats.version),
        ("store", f"sqlite:///{path}" if path else health.store or "(the token may not see it)"),
        ("takes messages", ready if health.error is None else show.Cell(health.error, "failed")),
    ]
    alive = [process for process in stats.processes if process.alive]
    for each in alive:
        started = session.times.near_text(each.started)
        facts.append(("process", f"{each.role} {each.host} pid {each.pid}, started {started}"))
    if not any(process.routes for process in alive):
        facts.append(("process", show.Cell("no worker: nothing is sent", "no worker")))
    numbers = [(state, stats.states.get(state, 0)) for state in State]
    facts += [(state, show.Cell(f"{number:,}", state)) for state, number in numbers if number]
    late = max((each.p99 or 0 for each in stats.lateness.values()), default=0)
    if late:
        facts.append(("late p99", f"{late:,} ms on the slowest route"))
    facts += [
        (name, show.Cell(part.detail or part.status, "warning"))
        for name, part in health.parts.items()
        if part.status not in ("ok", "none", "failed")
    ]
    return facts
