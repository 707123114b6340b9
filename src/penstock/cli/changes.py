"""Changes to messages, by id or by filter: cancel, reschedule, release, forget."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.options import (
    At,
    DelayOption,
    DryRun,
    DueFrom,
    DueTo,
    Expires,
    Headers,
    Ids,
    KeyFilter,
    LabelOptions,
    PayloadFile,
    PayloadText,
    RouteFilter,
    Version,
    Where,
    Yes,
    body,
    headers,
    labels,
)
from penstock.cli.session import FAILED, Session, command, confirm, must_ask
from penstock.model.errors import (
    AlreadyReleased,
    InvalidMessage,
    UnknownMessage,
    VersionConflict,
)
from penstock.model.message import Message
from penstock.model.state import State
from penstock.model.view import BulkResult

if TYPE_CHECKING:
    from penstock.cli.session import Verbs
    from penstock.sdk.fields import ChangeFields

COUNTED = 1_000
"""Messages of a key that a question counts exactly."""
Everything = Annotated[bool, typer.Option("--all", help="Every scheduled message.")]


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
    yes: Yes = False,
) -> None:
    """Cancel scheduled messages by id, or all that match a filter.

    Every id is tried; exit 1 when any could not be cancelled. With a filter the command prints
    how many match and asks for confirmation.

    \b
    Examples:
      penstock cancel order-17
      penstock cancel --route push --key user1 --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to)
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        await each(session, ids, lambda verbs, one: verbs.cancel(one, version=version))
    else:
        await matching(
            session,
            Bulk("cancelling", "cancelled", "Cancel {}?", "scheduled message"),
            lambda verbs, dry: verbs.cancel_where(dry_run=dry, **where),
            dry_run=dry_run,
            yes=yes,
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
        int | None, typer.Option("--priority", metavar="N", min=0, max=9, help="9 leaves first.")
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
    """Change when scheduled messages go out, by id or by filter; by id also their contents.

    By filter all that match become due at the same moment. A message that would have expired by
    then stays as it is: it is counted as matched, not as done.

    \b
    Examples:
      penstock reschedule order-17 --delay 2h
      penstock reschedule --route push --due-to 2030-01-31T09:00:00Z --delay 1h --dry-run
    """
    change: ChangeFields = {
        "at": at,
        "delay": delay,
        "headers": headers(header),
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
    await matching(
        session,
        Bulk("rescheduling", "rescheduled"),
        lambda verbs, dry: verbs.reschedule_where(at=at, delay=delay, dry_run=dry, **where),
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
    """Make scheduled messages due now, by id or all that match a filter.

    Policies decide about them again: one that a rule still refuses is deferred once more.

    \b
    Examples:
      penstock release order-17
      penstock release --route push --key user1 --dry-run
    """
    where = Where(route=route, key=key, due_from=due_from, due_to=due_to)
    if by_id(ids, where, version, every=all, dry_run=dry_run):
        await each(session, ids, lambda verbs, one: verbs.release(one, version=version))
    else:
        await matching(
            session,
            Bulk("releasing", "released"),
            lambda verbs, dry: verbs.release_where(dry_run=dry, **where),
            dry_run=dry_run,
        )


async def forget(
    session: Session,
    key: Annotated[
        str,
        typer.Option("--key", metavar="KEY", help="The key whose messages and counters to erase."),
    ],
    yes: Yes = False,
) -> None:
    """Erase every message of a key, in any state, with its timeline, and the key's counters.

    A message that is being sent right now is erased when that send has ended. Suppression lists
    keep the key: an opt-out outlives the erasure. The command prints the number of messages and
    asks for confirmation.

    \b
    Examples:
      penstock forget --key user1
    """
    asks = must_ask(yes)
    progress = show.progress("erasing")
    async with session.verbs(progress=progress.add) as verbs:
        if asks:
            items, more = await verbs.list(key=key, limit=COUNTED)
            found = f"{'more than ' if more else ''}{show.counted(len(items), 'message')}"
            confirm(f"Erase {found} and the counters of {show.printable(key)} for good?")
        with progress:
            erased = await verbs.forget(key)
    if session.json:
        show.as_json(erased)
        return
    messages, counters = (
        show.counted(erased.messages, "message"),
        show.counted(erased.counters, "counter"),
    )
    show.as_text(f"{messages} and {counters} erased")
    if erased.pending:
        show.as_text(f"{erased.pending:,} more are being sent and are erased when that has ended")


def _changes_nothing(change: ChangeFields) -> bool:
    return all(value is None for value in change.values())


def by_id(
    ids: list[str] | None, where: Where, version: int | None, *, every: bool, dry_run: bool
) -> bool:
    """True if the messages are named by id, False if by a filter; neither, or both, is refused."""
    filtered = every or any(value is not None for value in where.values())
    if bool(ids) == filtered:
        raise InvalidMessage("id", "give ids, or a filter (--route, --key, --due-…), or --all")
    if ids and dry_run:
        raise InvalidMessage("dry-run", "counts what a filter matches; it is not for ids")
    if not ids and version is not None:
        raise InvalidMessage("version", "needs a message id; it is not for a filter")
    return bool(ids)


async def each(
    session: Session,
    ids: list[str] | None,
    change: Callable[[Verbs, str], Awaitable[Message]],
    done: str | None = None,
) -> None:
    """Try every id; an error goes to stderr, and the exit code is 1 if there was one.

    `done`: the result to show, where the messages' state does not show it.
    """
    failed = False
    async with session.verbs() as verbs:
        for one in ids or ():
            try:
                _changed(session, await change(verbs, one), done)
            except (AlreadyReleased, UnknownMessage, VersionConflict) as exc:
                print(session.error_text(exc), file=sys.stderr)
                failed = True
    if failed:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class Bulk:
    """The words of a change by filter."""

    doing: str
    done: str
    question: str | None = None
    """The confirmation prompt, with {} for the number of messages; None: nothing is lost by it."""
    noun: str = "message"


async def matching(
    session: Session,
    words: Bulk,
    change: Callable[[Verbs, bool], Awaitable[BulkResult]],
    *,
    dry_run: bool,
    yes: bool = False,
) -> None:
    """Change all that match, after a question where it cannot be undone.

    `change` only counts where its second argument is true.
    """
    asks = words.question is not None and not dry_run and must_ask(yes)
    progress = show.progress(words.doing)
    async with session.verbs(progress=progress.add) as verbs:
        if asks and words.question is not None:
            counted = await change(verbs, True)
            if counted.matched:
                confirm(words.question.format(show.counted(counted.matched, words.noun)))
        with progress:
            result = await change(verbs, dry_run)
    if session.json:
        show.as_json(result)
    elif dry_run:
        show.as_text(f"{result.matched:,} would be {words.done}")
    else:
        show.as_text(f"{result.done:,} of {result.matched:,} {words.done}")


def _changed(session: Session, message: Message, done: str | None) -> None:
    """The definite answer to a change."""
    if session.json:
        show.message_json(message)
    else:
        gone = done is not None or message.state is State.CANCELLED
        due = "" if gone else f", due {session.times.near(message.due)}"
        show.as_text(f"{message.id}  {done or message.state}{due}")
