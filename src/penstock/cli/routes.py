"""Routes: where messages go, how it stands, pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group

app = typer.Typer(no_args_is_help=True)
group(app, "Where messages go: list, pause, resume.")

RouteArgument = Annotated[str, typer.Argument(metavar="ROUTE", help="The route's name.")]


@command(app, "list", remote=True)
async def list_(session: Session) -> None:
    """List routes, with what the store holds for each.

    \b
    Examples:
      penstock route list --json
    """
    async with session.verbs() as verbs:
        routes = await verbs.routes()
    if session.json:
        show.as_json({"items": routes, "next": None})
        return
    show.table(
        ("route", "sink", "state", ">scheduled", ">overdue", ">leased", ">dead", "next due"),
        [
            (
                route.name,
                route.sink or "(not served here)",
                show.route_state(route),
                f"{route.scheduled:,}",
                f"{route.overdue:,}",
                f"{route.leased:,}",
                f"{route.dead:,}",
                route.next_due,
            )
            for route in routes
        ],
    )


@command(app, remote=True)
async def pause(session: Session, route: RouteArgument) -> None:
    """Hold everything of a route, in every process.

    \b
    Examples:
      penstock route pause push
    """
    async with session.verbs() as verbs:
        await verbs.pause(route)
    _told(session, route, paused=True)


@command(app, remote=True)
async def resume(session: Session, route: RouteArgument) -> None:
    """Let a paused route go on.

    \b
    Examples:
      penstock route resume push
    """
    async with session.verbs() as verbs:
        await verbs.resume(route)
    _told(session, route, paused=False)


def _told(session: Session, route: str, *, paused: bool) -> None:
    if session.json:
        show.as_json({"name": route, "paused": paused})
    else:
        show.as_text(f"{route} is {'paused' if paused else 'active'}")
