"""Routes: where messages go, how it stands, pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group
from penstock.model.times import parse_duration

app = typer.Typer(no_args_is_help=True)
group(app, "Where messages go: list, init, pause, resume.")

Wait = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="For a broker that does not answer yet.")
]
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


@command(app)
async def init(session: Session, wait: Wait = "60s") -> None:
    """Make the topics, queues and streams of routes with `create_topic`, as the first send would.

    Harmless to repeat: what is there stays as it is.

    \b
    Examples:
      penstock route init --config penstock.toml
    """
    from penstock.wiring import init_routes

    made = await init_routes(session.settings(), parse_duration(wait, "--wait") / 1000)
    if session.json:
        show.as_json({"routes": made})
        return
    show.as_text(
        *(f"{name}: {where} is there" for name, where in made.items())
        if made
        else ("no route has create_topic",)
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
