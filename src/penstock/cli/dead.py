"""Dead letters: what could not be delivered, and sending it once more."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.messages import list_messages
from penstock.cli.options import (
    All,
    CursorOption,
    DryRun,
    DueFrom,
    DueTo,
    ErrorFilter,
    KeyFilter,
    Limit,
    RouteFilter,
    Where,
)
from penstock.cli.session import Session, command, group
from penstock.model.state import State

app = typer.Typer(no_args_is_help=True)
group(app, "Messages that could not be delivered: list, redrive.")


@command(app, "list", remote=True)
async def list_(
    session: Session,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    error: ErrorFilter = None,
    limit: Limit = 100,
    cursor: CursorOption = None,
    all: All = False,  # noqa: A002
) -> None:
    """List the dead, with their last error.

    \b
    Examples:
      penstock dead list --route push --error timeout
    """
    where = Where(
        state=State.DEAD, route=route, key=key, due_from=due_from, due_to=due_to, error=error
    )
    async with session.verbs() as verbs:
        await list_messages(session, verbs, where, limit=limit, cursor=cursor, every=all)


@command(app, remote=True)
async def redrive(
    session: Session,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    error: ErrorFilter = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="How fast: 100/s, 30/m [default: all at once].")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Send the dead that match once more; without a filter all of them.

    \b
    Examples:
      penstock dead redrive --route push --rate 100/s
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to, error=error)
    with show.progress("redriving") as progress:
        async with session.verbs(progress=progress.add) as verbs:
            result = await verbs.redrive(rate=rate, dry_run=dry_run, **where)
    show.bulk(result, "redriven", json=session.json, dry_run=dry_run)
