"""Messages: schedule, get, list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.names import routes
from penstock.cli.options import (
    All,
    At,
    ContentType,
    CursorOption,
    DelayOption,
    DueFrom,
    DueTo,
    ErrorFilter,
    Expires,
    Headers,
    IdArgument,
    KeyFilter,
    LabelOptions,
    Limit,
    PayloadFile,
    PayloadText,
    RouteFilter,
    Where,
    body,
    headers,
    labels,
)
from penstock.cli.session import Session, command
from penstock.model.errors import InvalidMessage, UnknownThing
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE
from penstock.model.state import State
from penstock.model.view import PageOut, accepted, message_out

if TYPE_CHECKING:
    from penstock.cli.session import Verbs
    from penstock.sdk.fields import MessageFields


DEFERRED = (
    "a deferred message is `scheduled`: in the list of those, the column `held by` names its policy"
)


def register(app: typer.Typer) -> None:
    command(app, remote=True)(schedule)
    command(app, remote=True)(get)
    command(app, "list", remote=True)(list_)


async def schedule(
    session: Session,
    route: Annotated[
        str,
        typer.Argument(
            metavar="ROUTE",
            help="The route to send it by: a [routes.*] name.",
            autocompletion=routes,
        ),
    ] = DEFAULT_ROUTE,
    payload: PayloadText = None,
    payload_file: PayloadFile = None,
    content_type: ContentType = None,
    at: At = None,
    delay: DelayOption = None,
    id: Annotated[  # noqa: A002 - the option's name
        str | None,
        typer.Option("--id", metavar="ID", help="The same id twice is one message."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="The recipient or subject of the message [default: the id].",
        ),
    ] = None,
    header: Headers = None,
    priority: Annotated[
        int,
        typer.Option(
            "--priority", metavar="N", min=0, max=9, help="9 leaves first among those due."
        ),
    ] = DEFAULT_PRIORITY,
    expires: Expires = None,
    label: LabelOptions = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="A destination that the route allows."),
    ] = None,
    on_conflict: Annotated[
        str,
        typer.Option(
            "--on-conflict",
            metavar="WORD",
            help="If the id is known: keep, replace or earliest.",
            autocompletion=lambda: ["keep", "replace", "earliest"],
        ),
    ] = "keep",
) -> None:
    """Schedule a message for a moment; without --at and --delay that is now.

    \b
    Examples:
      penstock schedule --payload '{"hello":"later"}' --delay 10s
      penstock schedule push --id order-17 --payload @body.json --delay 2h
    """
    fields: MessageFields = {
        "route": route,
        "at": at,
        "delay": delay,
        "id": id,
        "key": key,
        "headers": headers(header),
        "priority": priority,
        "expires": expires,
        "labels": labels(label),
        "topic": topic,
        "content_type": content_type,
        "on_conflict": on_conflict,
    }
    sent = body(payload, payload_file, content_type)
    receipt = await session.creating(lambda verbs: verbs.schedule(sent, **fields))
    if session.json:
        show.as_json(accepted(receipt))
        return
    if receipt.duplicate and receipt.state is not State.SCHEDULED:
        show.as_text(
            f"nothing was scheduled: the id {receipt.id} is already {receipt.state}"
            f" (it was due {session.times.both(receipt.due)})"
        )
        return
    known = " (known before)" if receipt.duplicate else ""
    due = session.times.near(receipt.due)
    show.as_text(f"{receipt.id}  {receipt.state}, due {due}{known}")


async def get(session: Session, id: IdArgument) -> None:  # noqa: A002
    """Show a message and its timeline.

    \b
    Examples:
      penstock get order-17 --json
    """
    await show_message(session, id)


async def show_message(session: Session, message_id: str, state: State | None = None) -> None:
    """The message with its timeline; with a `state` only if it is in that one."""
    async with session.verbs() as verbs:
        message, timeline = await verbs.get(message_id), await verbs.timeline(message_id)
    if state not in (None, message.state):
        raise UnknownThing(f"message {message_id!r} is {message.state}, not {state}")
    if session.json:
        show.message_json(message, timeline)
    else:
        show.message(message, timeline, session.times)


async def list_(
    session: Session,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            autocompletion=lambda: [*State],
            help="scheduled (also if deferred), leased, delivered, dead, blocked, expired or"
            " cancelled.",
        ),
    ] = None,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    error: ErrorFilter = None,
    limit: Limit = 100,
    cursor: CursorOption = None,
    all: All = False,  # noqa: A002
) -> None:
    """List messages, the next due first.

    \b
    Examples:
      penstock list --state scheduled --route push
      penstock list --all --json | jq -r .id
    """
    if state == "deferred":
        raise InvalidMessage("state", DEFERRED)
    where = Where(state=state, route=route, key=key, due_from=due_from, due_to=due_to, error=error)
    async with session.verbs() as verbs:
        await list_messages(session, verbs, where, limit=limit, cursor=cursor, every=all)


async def list_messages(
    session: Session, verbs: Verbs, where: Where, *, limit: int, cursor: str | None, every: bool
) -> None:
    """Print one page, or all pages one after the other."""
    while True:
        items, following = await verbs.list(cursor=cursor, limit=limit, **where)
        if not session.json:
            show.messages(items, session.times)
        elif every:
            for item in items:
                show.message_json(item)
        else:
            show.as_json(PageOut([message_out(item) for item in items], following))
        if not every or following is None:
            break
        cursor = following
    if following is not None and not session.json:
        print(f"there are more: --cursor {following}, or --all", file=sys.stderr)
