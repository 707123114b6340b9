"""Dead letters: what could not be delivered, sending it once more, and deleting it."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.changes import Ids, by_id, each
from penstock.cli.given import IdArgument
from penstock.cli.messages import list_messages, show_message
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
    Version,
    Where,
    Yes,
)
from penstock.cli.session import Session, command, confirm, group
from penstock.model.state import State

app = typer.Typer(no_args_is_help=True)
group(app, "Messages that could not be delivered: list, show, redrive, delete.")


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


@command(app, "show", remote=True)
async def show_(session: Session, id: IdArgument) -> None:  # noqa: A002
    """Show one dead message, and what happened to it.

    \b
    Examples:
      penstock dead show order-17
    """
    await show_message(session, id, State.DEAD)


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


@command(app, remote=True)
async def delete(
    session: Session,
    ids: Ids = None,
    version: Version = None,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    error: ErrorFilter = None,
    all: Annotated[bool, typer.Option("--all", help="Every dead message.")] = False,  # noqa: A002
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead messages by id, or all that match a filter: nothing of them is kept.

    By filter it says how many there are and asks first; --yes does not ask.

    \b
    Examples:
      penstock dead delete order-17
      penstock dead delete --route push --error timeout --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to, error=error)
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        await each(session, ids, lambda verbs, one: verbs.delete(one, version=version), "deleted")
        return
    if not yes:
        async with session.verbs() as verbs:
            result = await verbs.delete_dead(dry_run=True, **where)
        if result.matched and not dry_run:
            confirm(f"Delete {result.matched:,} dead messages for good?")
    with show.progress("deleting") as progress:
        async with session.verbs(progress=progress.add) as verbs:
            result = await verbs.delete_dead(dry_run=dry_run, **where)
    show.bulk(result, "deleted", json=session.json, dry_run=dry_run)
