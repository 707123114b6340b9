"""Routes: list them with what the store holds, create their topics, pause and resume."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import names, plain, show
from penstock.cli.session import Session, command, group
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    from penstock.api.verbs import Verb
    from penstock.model.status_view import RouteStatus

app = typer.Typer(no_args_is_help=True)
group(app, "Where messages go: list, init, pause, resume.")

Wait = Annotated[
    str, typer.Option("--wait", metavar="DURATION", help="How long a broker has to come up.")
]
RouteArgument = Annotated[
    str, typer.Argument(metavar="ROUTE", help="The route's name.", autocompletion=names.routes)
]


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
    show_routes(routes, session.times)


@command(app)
async def init(session: Session, wait: Wait = "60s") -> None:
    """Create the topics, queues and streams of routes with `create_topic`.

    Harmless to repeat: what is there stays as it is. A worker does the same when it starts.

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


def show_routes(routes: Iterable[RouteStatus], times: show.Times) -> None:
    show.table(
        ("route", "state", ">scheduled", ">overdue", ">leased", ">dead", "next due", "~sink"),
        [
            (
                route.name,
                _state(route),
                f"{route.scheduled:,}",
                f"{route.overdue:,}",
                _unless_zero(route.leased),
                show.Cell(f"{route.dead:,}", "dead") if route.dead else None,
                times.near_text(route.next_due),
                route.sink or "(not configured here)",
            )
            for route in routes
        ],
    )


def _state(route: RouteStatus) -> show.Cell:
    state = show.route_state(route)
    unserved = state == "active" and route.in_flight is None
    return show.Cell("active, no worker", "no worker") if unserved else show.Cell(state, state)


def _unless_zero(number: int) -> str | None:
    return f"{number:,}" if number else None


def _paused(session: Session, verb: Verb, names: tuple[str, ...], answer: None) -> None:
    del answer
    (route,), paused = names, verb.word == "pause"
    if session.json:
        show.as_json({"name": route, "paused": paused})
    else:
        show.as_text(f"{route} is {'paused' if paused else 'active'}")


plain.register(app, "route", lambda verbs: verbs, {"name": RouteArgument}, _paused)
