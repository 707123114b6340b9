"""Dead letters: list undeliverable messages, send them again, delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.changes import Bulk, by_id, each, matching
from penstock.cli.messages import list_messages, show_message
from penstock.cli.options import (
    All,
    CursorOption,
    DryRun,
    DueFrom,
    DueTo,
    ErrorFilter,
    IdArgument,
    Ids,
    KeyFilter,
    Limit,
    RouteFilter,
    Version,
    Where,
    Yes,
)
from penstock.cli.session import Session, command, group
from penstock.model.errors import InvalidMessage
from penstock.model.state import State

Every = Annotated[bool, typer.Option("--all", help="Every dead message.")]

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
    """List dead messages with their last error.

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
    """Show one dead message and its timeline.

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
    all: Every = False,  # noqa: A002
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Messages to redrive per second or minute: 100/s, 30/m [default: all at once].",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Send dead messages again: all that match a filter, or --all.

    The command prints how many match and asks for confirmation.

    \b
    Examples:
      penstock dead redrive --route push --rate 100/s
      penstock dead redrive --all --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to, error=error)
    if all == any(value is not None for value in where.values()):
        raise InvalidMessage("all", "give a filter (--route, --key, --error, --due-…), or --all")
    await matching(
        session,
        Bulk("redriving", "redriven", "Send {} once more?", "dead message"),
        lambda verbs, dry: verbs.redrive(rate=rate, dry_run=dry, **where),
        dry_run=dry_run,
        yes=yes,
    )


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
    all: Every = False,  # noqa: A002
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead messages, with everything stored of them, by id or by filter.

    With a filter the command prints how many match and asks for confirmation.

    \b
    Examples:
      penstock dead delete order-17
      penstock dead delete --route push --error timeout --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to, error=error)
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        await each(session, ids, lambda verbs, one: verbs.delete(one, version=version), "deleted")
        return
    await matching(
        session,
        Bulk("deleting", "deleted", "Delete {} for good?", "dead message"),
        lambda verbs, dry: verbs.delete_dead(dry_run=dry, **where),
        dry_run=dry_run,
        yes=yes,
    )
