"""Messages: schedule, get, list, cancel, reschedule, release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli import show
from penstock.cli.options import (
    All,
    At,
    CursorOption,
    DelayOption,
    DryRun,
    DueFrom,
    DueTo,
    ErrorFilter,
    KeyFilter,
    Limit,
    RouteFilter,
    Version,
    Where,
)
from penstock.cli.session import FAILED, Session, command
from penstock.model.errors import (
    AlreadyReleased,
    InvalidMessage,
    UnknownMessage,
    VersionConflict,
)
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE, Message
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.model.view import PageOut, accepted, message_out

if TYPE_CHECKING:
    from penstock.cli.session import Verbs
    from penstock.sdk.fields import ChangeFields, MessageFields

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
PayloadText = Annotated[
    str | None,
    typer.Option(
        "--payload",
        metavar="JSON",
        help="What to send: JSON, sent as it is; other text becomes a JSON string.",
    ),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payload-file", metavar="FILE", help="Send this file; - is standard input."),
]
ContentType = Annotated[
    str | None,
    typer.Option("--content-type", metavar="TYPE", help="Send the payload as it is, as this type."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Passed on to the sink; repeatable."),
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="Not sent after this (RFC 3339).")
]
LabelOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="channel, campaign, class, tz or tags (repeatable, also in one: tags=a,b).",
    ),
]


def register(app: typer.Typer) -> None:
    command(app, remote=True)(schedule)
    command(app, remote=True)(get)
    command(app, "list", remote=True)(list_)
    command(app, remote=True)(cancel)
    command(app, remote=True)(reschedule)
    command(app, remote=True)(release)


async def schedule(
    session: Session,
    route: Annotated[
        str, typer.Argument(metavar="ROUTE", help="Where it goes: a [routes.*] name.")
    ] = DEFAULT_ROUTE,
    payload: PayloadText = None,
    payload_file: PayloadFile = None,
    content_type: ContentType = None,
    at: At = None,
    delay: DelayOption = None,
    id: Annotated[  # noqa: A002 - the option's name
        str | None, typer.Option("--id", help="Its identity: the same id twice is one message.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Whom or what it is about [default: the id].")
    ] = None,
    header: Headers = None,
    priority: Annotated[
        int, typer.Option("--priority", min=0, max=9, help="9 leaves first among those due.")
    ] = DEFAULT_PRIORITY,
    expires: Expires = None,
    label: LabelOptions = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="A destination the route allows.")
    ] = None,
    on_conflict: Annotated[
        str, typer.Option("--on-conflict", help="For a known id: keep, replace or earliest.")
    ] = "keep",
) -> None:
    """Hold a message until its moment; without --at and --delay that is now.

    \b
    Examples:
      penstock schedule --payload '{"hello":"later"}' --delay 10s
      penstock schedule push --id order-17 --payload-file body.json --at 2030-01-31T09:00:00Z
    """
    fields: MessageFields = {
        "route": route,
        "at": at,
        "delay": delay,
        "id": id,
        "key": key,
        "headers": _pairs(header, "header"),
        "priority": priority,
        "expires": expires,
        "labels": _labels(label),
        "topic": topic,
        "content_type": content_type,
        "on_conflict": on_conflict,
    }
    body = _body(payload, payload_file, content_type)
    async with session.verbs(creates=True) as verbs:
        receipt = await verbs.schedule(body, **fields)
    if session.json:
        show.as_json(accepted(receipt))
        return
    if receipt.duplicate and receipt.state is not State.SCHEDULED:
        show.as_text(
            f"nothing was scheduled: the id {receipt.id} is already {receipt.state}"
            f" (it was due {format_moment(receipt.due)})"
        )
        return
    known = " (known before)" if receipt.duplicate else ""
    show.as_text(f"{receipt.id}  {receipt.state}, due {format_moment(receipt.due)}{known}")


async def get(session: Session, id: IdArgument) -> None:  # noqa: A002
    """Show a message and what happened to it.

    \b
    Examples:
      penstock get order-17 --json
    """
    async with session.verbs() as verbs:
        message, timeline = await verbs.get(id), await verbs.timeline(id)
    if session.json:
        show.message_json(message, timeline)
    else:
        show.message(message, timeline)


async def list_(
    session: Session,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="scheduled, leased, delivered, dead, blocked, expired or cancelled.",
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
    """List messages in order of due.

    \b
    Examples:
      penstock list --state scheduled --route push
      penstock list --all --json | jq -r .id
    """
    where = Where(state=state, route=route, key=key, due_from=due_from, due_to=due_to, error=error)
    async with session.verbs() as verbs:
        await list_messages(session, verbs, where, limit=limit, cursor=cursor, every=all)


async def cancel(
    session: Session,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The messages' ids.")
    ] = None,
    version: Version = None,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    all: Annotated[bool, typer.Option("--all", help="Everything that is scheduled.")] = False,  # noqa: A002
    dry_run: DryRun = False,
) -> None:
    """Cancel messages by id, or all scheduled ones that match a filter.

    Every id is tried; exit 1 when any could not be cancelled.

    \b
    Examples:
      penstock cancel order-17
      penstock cancel --route push --key user1 --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to)
    filtered = any(value is not None for value in where.values())
    if bool(ids) == (filtered or all):
        raise InvalidMessage("id", "give ids, or a filter (--route, --key, --due-…), or --all")
    if all:
        where["state"] = State.SCHEDULED.value
    if not ids:
        with show.progress("cancelling") as progress:
            async with session.verbs(progress=progress.add) as verbs:
                result = await verbs.cancel_where(dry_run=dry_run, **where)
        show.bulk(result, "cancelled", json=session.json, dry_run=dry_run)
        return
    failed = False
    async with session.verbs() as verbs:
        for id_ in ids:
            try:
                changed(session, await verbs.cancel(id_, version=version))
            except (AlreadyReleased, UnknownMessage, VersionConflict) as exc:
                print(session.told(exc), file=sys.stderr)
                failed = True
    if failed:
        raise typer.Exit(FAILED)


async def reschedule(
    session: Session,
    id: IdArgument,  # noqa: A002
    at: At = None,
    delay: DelayOption = None,
    payload: PayloadText = None,
    payload_file: PayloadFile = None,
    header: Headers = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=9, help="9 leaves first.")
    ] = None,
    expires: Expires = None,
    label: LabelOptions = None,
    version: Version = None,
) -> None:
    """Change when a waiting message goes out, or what it says.

    \b
    Examples:
      penstock reschedule order-17 --delay 2h
    """
    change: ChangeFields = {
        "at": at,
        "delay": delay,
        "headers": _pairs(header, "header"),
        "priority": priority,
        "expires": expires,
        "labels": _labels(label),
    }
    if payload is not None or payload_file is not None:
        change["payload"] = _body(payload, payload_file, None)
    async with session.verbs() as verbs:
        changed(session, await verbs.reschedule(id, version=version, **change))


async def release(session: Session, id: IdArgument, version: Version = None) -> None:  # noqa: A002
    """Make a waiting message due now.

    \b
    Examples:
      penstock release order-17
    """
    async with session.verbs() as verbs:
        changed(session, await verbs.release(id, version=version))


async def list_messages(
    session: Session, verbs: Verbs, where: Where, *, limit: int, cursor: str | None, every: bool
) -> None:
    """One page, or every one of them as they come."""
    while True:
        items, following = await verbs.list(cursor=cursor, limit=limit, **where)
        if not session.json:
            show.messages(items)
        elif every:
            for item in items:
                show.message_json(item)
        else:
            show.as_json(PageOut([message_out(item) for item in items], following))
        if not every or following is None:
            break
        cursor = following
    if following is not None and not session.json:
        print(f"more: --cursor {following} (or --all)", file=sys.stderr)


def changed(session: Session, message: Message) -> None:
    """The definite answer to a change."""
    if session.json:
        show.message_json(message)
    else:
        show.as_text(f"{message.id}  {message.state}, due {format_moment(message.due)}")


def _body(text: str | None, file: Path | None, content_type: str | None) -> object:
    """JSON is sent verbatim; text with a type, and files that are not JSON, as bytes."""
    if text is not None and file is not None:
        raise InvalidMessage("payload", "give either --payload or --payload-file")
    raw = _read(file) if file is not None else None if text is None else text.encode()
    if raw is None:
        return None
    if content_type is not None:
        return raw
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        if text is None:
            return raw
        if text.lstrip()[:1] in {"{", "[", '"'}:
            raise InvalidMessage(
                "payload", f"looks like JSON but is not ({exc}); with --content-type it is text"
            ) from exc
        return text
    return msgspec.Raw(raw)


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as exc:
        raise InvalidMessage("payload-file", f"cannot read {file}: {exc.strerror}") from exc


def _pairs(given: list[str] | None, option: str) -> dict[str, str] | None:
    if not given:
        return None
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidMessage(option, f"{text!r} must be NAME=VALUE")
        pairs[name] = value
    return pairs


def _labels(given: list[str] | None) -> dict[str, object] | None:
    if not given:
        return None
    labels: dict[str, object] = {}
    tags: list[str] = []
    for text in given:
        ((name, value),) = (_pairs([text], "label") or {}).items()
        if name in {"tag", "tags"}:
            tags += value.split(",")
        else:
            labels[name] = value
    return labels | ({"tags": tags} if tags else {})
