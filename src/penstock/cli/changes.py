"""Changes to waiting messages, by id or by filter: cancel, reschedule, release."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.given import (
    Expires,
    Headers,
    LabelOptions,
    PayloadFile,
    PayloadText,
    body,
    labels,
    pairs,
)
from penstock.cli.options import (
    At,
    DelayOption,
    DryRun,
    DueFrom,
    DueTo,
    KeyFilter,
    RouteFilter,
    Version,
    Where,
    Yes,
)
from penstock.cli.session import FAILED, Session, command, confirm
from penstock.model.errors import (
    AlreadyReleased,
    InvalidMessage,
    UnknownMessage,
    VersionConflict,
)
from penstock.model.message import Message
from penstock.model.times import format_moment
from penstock.model.view import BulkResult

if TYPE_CHECKING:
    from penstock.cli.session import Verbs
    from penstock.sdk.fields import ChangeFields

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The messages' ids.")]
Everything = Annotated[bool, typer.Option("--all", help="Everything that is scheduled.")]


def register(app: typer.Typer) -> None:
    command(app, remote=True)(cancel)
    command(app, remote=True)(reschedule)
    command(app, remote=True)(release)
    command(app, remote=True)(forget)


async def cancel(
    session: Session,
    ids: Ids = None,
    version: Version = None,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    all: Everything = False,  # noqa: A002
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
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        await each(session, ids, lambda verbs, one: verbs.cancel(one, version=version))
    else:
        await _all(
            session,
            ("cancelling", "cancelled"),
            lambda verbs: verbs.cancel_where(dry_run=dry_run, **where),
            dry_run=dry_run,
        )


async def reschedule(
    session: Session,
    ids: Ids = None,
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
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    all: Everything = False,  # noqa: A002
    dry_run: DryRun = False,
) -> None:
    """Change when waiting messages go out, by id or by filter; by id also what they say.

    By filter all that match become due at one moment. What would have expired by then stays
    as it is, and is matched but not done.

    \b
    Examples:
      penstock reschedule order-17 --delay 2h
      penstock reschedule --route push --due-to 2030-01-31T09:00:00Z --delay 1h --dry-run
    """
    change: ChangeFields = {
        "at": at,
        "delay": delay,
        "headers": pairs(header, "header"),
        "priority": priority,
        "expires": expires,
        "labels": labels(label),
    }
    if payload is not None or payload_file is not None:
        change["payload"] = body(payload, payload_file, None)
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to)
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        if _changes_nothing(change):
            raise InvalidMessage("at", "say what to change: --at, --delay, --payload, --header …")
        await each(
            session, ids, lambda verbs, one: verbs.reschedule(one, version=version, **change)
        )
        return
    if at is None and delay is None:
        raise InvalidMessage("at", "say when: --at or --delay")
    if any(value is not None for name, value in change.items() if name not in {"at", "delay"}):
        raise InvalidMessage("id", "by filter only --at or --delay can be given")
    await _all(
        session,
        ("rescheduling", "rescheduled"),
        lambda verbs: verbs.reschedule_where(at=at, delay=delay, dry_run=dry_run, **where),
        dry_run=dry_run,
    )


async def release(
    session: Session,
    ids: Ids = None,
    version: Version = None,
    route: RouteFilter = None,
    key: KeyFilter = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    all: Everything = False,  # noqa: A002
    dry_run: DryRun = False,
) -> None:
    """Make waiting messages due now, by id or all that match a filter.

    \b
    Examples:
      penstock release order-17
      penstock release --route push --key user1 --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to)
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        await each(session, ids, lambda verbs, one: verbs.release(one, version=version))
    else:
        await _all(
            session,
            ("releasing", "released"),
            lambda verbs: verbs.release_where(dry_run=dry_run, **where),
            dry_run=dry_run,
        )


async def forget(
    session: Session,
    key: Annotated[str, typer.Option("--key", help="Whose messages and counters.")],
    yes: Yes = False,
) -> None:
    """Erase every message of a key, in whatever state, with its timeline, and the key's counters.

    Messages that are being sent right now go when that has ended. Suppression lists keep the
    key: an opt-out outlives the erasure. In a terminal it asks first.

    \b
    Examples:
      penstock forget --key user1
    """
    if not yes and sys.stdin.isatty():
        confirm(f"Erase every message and counter of {show.printable(key)} for good?")
    with show.progress("erasing") as progress:
        async with session.verbs(progress=progress.add) as verbs:
            erased = await verbs.forget(key)
    if session.json:
        show.as_json(erased)
        return
    show.as_text(f"{erased.messages:,} messages and {erased.counters:,} counters erased")
    if erased.pending:
        show.as_text(f"{erased.pending:,} are being sent and are erased when that has ended")


def _changes_nothing(change: ChangeFields) -> bool:
    return all(value is None for value in change.values())


def by_id(
    ids: list[str] | None, where: Where, version: int | None, *, every: bool, dry_run: bool
) -> bool:
    """Whether ids are given; else it is a filter. Neither, or both, is a mistake."""
    filtered = every or any(value is not None for value in where.values())
    if bool(ids) == filtered:
        raise InvalidMessage("id", "give ids, or a filter (--route, --key, --due-…), or --all")
    if ids and dry_run:
        raise InvalidMessage("dry-run", "counts what a filter finds; it is not for ids")
    if not ids and version is not None:
        raise InvalidMessage("version", "is of one message; it is not for a filter")
    return bool(ids)


async def each(
    session: Session,
    ids: list[str] | None,
    change: Callable[[Verbs, str], Awaitable[Message]],
    done: str | None = None,
) -> None:
    """Every id is tried; what could not be done is told, and the exit code says so.

    `done`: what became of the messages, where their states do not tell.
    """
    failed = False
    async with session.verbs() as verbs:
        for one in ids or ():
            try:
                _changed(session, await change(verbs, one), done)
            except (AlreadyReleased, UnknownMessage, VersionConflict) as exc:
                print(session.told(exc), file=sys.stderr)
                failed = True
    if failed:
        raise typer.Exit(FAILED)


async def _all(
    session: Session,
    words: tuple[str, str],
    change: Callable[[Verbs], Awaitable[BulkResult]],
    *,
    dry_run: bool,
) -> None:
    doing, done = words
    with show.progress(doing) as progress:
        async with session.verbs(progress=progress.add) as verbs:
            result = await change(verbs)
    show.bulk(result, done, json=session.json, dry_run=dry_run)


def _changed(session: Session, message: Message, done: str | None) -> None:
    """The definite answer to a change."""
    if session.json:
        show.message_json(message)
    else:
        show.as_text(f"{message.id}  {done or message.state}, due {format_moment(message.due)}")
