"""The store itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import FAILED, IN_MEMORY, Session, command, group
from penstock.model.errors import ConfigError, UnknownThing
from penstock.model.times import format_moment, parse_duration

if TYPE_CHECKING:
    from penstock.ports.store import Store

app = typer.Typer(no_args_is_help=True)
group(app, "The store itself: init, migrate, check, copy, backup, restore.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup: NDJSON under gzip.")]
From = Annotated[str, typer.Argument(metavar="FROM", help="URL of the store to empty.")]
To = Annotated[str, typer.Argument(metavar="TO", help="URL of the store to fill.")]
Wait = Annotated[
    str,
    typer.Option(
        "--wait", metavar="DURATION", help="Wait for messages that FROM is sending at the moment."
    ),
]
NAMED = 10
"""Recurring rules that are named at most."""
CheckOnly = Annotated[bool, typer.Option("--check", help="Only check the file; restore nothing.")]


@command(app)
async def init(session: Session) -> None:
    """Create what the store needs before it is first used, such as a table or a schema.

    Harmless to repeat: what is there stays as it is.

    \b
    Examples:
      penstock store init --config penstock.toml
    """
    await _init(session)


@command(app)
async def migrate(session: Session) -> None:
    """Bring a store of an older version up to date, or create it.

    Harmless to repeat, and from many processes at once: one does it, the others wait for it.

    \b
    Examples:
      penstock store migrate --config penstock.toml
    """
    await _init(session)


async def _init(session: Session) -> None:
    from penstock.wiring import init_store

    done = await init_store(session.settings())
    if session.json:
        show.as_json({"status": "ok", "done": done})
    else:
        show.as_text(done)


@command(app)
async def check(session: Session) -> None:
    """Check the store; exit 1 if it is damaged or does not answer.

    A SQLite file is read whole and verified; any other store only has to answer.

    \b
    Examples:
      penstock store check --config penstock.toml
    """
    async with session.parts() as parts:
        facts = await parts.store.messages.check()
        found = "answers"
        if parts.store.self_check is not None:
            await parts.store.self_check.integrity()
            found = "is sound"
    if session.json:
        show.as_json({"status": "ok", "store": parts.store.name, "facts": facts})
    else:
        show.as_text(f"{parts.store.name} {found}", *(f"  {k}: {v}" for k, v in facts.items()))


@command(app)
async def copy(session: Session, from_: From, to: To, wait: Wait = "60s") -> None:
    """Move everything that is pending from one store to another, while both are in use.

    Ids stay. A message is in one store or the other and is sent once: it is parked in FROM, put
    into TO, and then cancelled in FROM, where its id stays known. Killed in the middle, the same
    command goes on. Paused routes, policies, suppressions and recurring rules go first. Not
    moved: settled messages, counters, waiting rooms. Attempts are counted anew.

    \b
    Examples:
      penstock store copy sqlite:///penstock.db postgresql://app@db/shop
      penstock store copy redis://cache:6379/0 postgresql://app@db/shop --wait 10m
    """
    from penstock.flow.handover import Handover

    async with opened(session, from_) as source, opened(session, to, creates=True) as target:
        progress = show.progress("copying")
        handover = Handover(source, target, progress.add)
        progress.total = await handover.pending()
        with progress:
            copied = await handover.run(parse_duration(wait, "--wait"))
    left = [
        (copied.being_sent, "being sent by the workers of FROM: run this again, or let them end"),
        (len(copied.too_large), "too large for TO and still in FROM"),
    ]
    examined = session.examined()
    rules = sorted(examined.settings.recurring)
    if session.json:
        status = "ok" if not any(n for n, _ in left) else "left"
        show.as_json({"status": status, "copied": copied, "rules_in_settings": rules})
    else:
        show.as_text(
            f"{source.name} → {target.name}: {show.counted(copied.moved, 'message')}"
            f" ({copied.dead:,} dead, {copied.known:,} known there),"
            f" {show.counted(copied.rules, 'recurring rule')},"
            f" {copied.policies + copied.suppressions:,} policies and suppressions",
            *(f"  {show.counted(number, 'message')} {why}" for number, why in left if number),
            *_still_in_settings(rules, examined.file),
        )
    if any(number for number, _ in left):
        raise typer.Exit(FAILED)


def _still_in_settings(rules: Sequence[str], file: Path | None) -> Iterator[str]:
    """The line on recurring rules that a start with these settings puts into its store."""
    if rules:
        more = f" and {len(rules) - NAMED:,} more" if len(rules) > NAMED else ""
        yield (
            f"  [recurring] in {file or 'the environment'} has {', '.join(rules[:NAMED])}{more}:"
            " only a server on TO may start with it, since one on FROM plants these rules again"
        )


@command(app)
async def backup(session: Session, file: File) -> None:
    """Write what is pending into a file, while the store is in use.

    Messages that are scheduled, being sent or dead, recurring rules, policies, suppressions and
    paused routes, as compressed NDJSON with a checksum. Not in it: settled messages, counters,
    waiting rooms.

    \b
    Examples:
      penstock store backup penstock.ndjson.gz
    """
    from penstock.cli import backup_file
    from penstock.flow.backup import saved

    async with session.parts() as parts:
        store = parts.store
        begin = backup_file.Begin(backup_file.FORMAT, store.name, format_moment(store.clock.now()))
        progress = show.progress("writing")
        with progress:
            lines = await backup_file.write(file, begin, saved(store), progress.add)
    backup_file.check(file)
    _tell(session, f"{store.name} → {file}", lines)


@command(app)
async def restore(session: Session, file: File, check: CheckOnly = False) -> None:
    """Put what is in a backup into the store; ids that it has already stay as they are.

    The whole file is checked first: of a damaged one nothing is restored. Messages that were sent
    since the backup was made, and whose ids the store does not know, are sent again; what is
    overdue is sent at once.

    \b
    Examples:
      penstock store restore penstock.ndjson.gz --check
      penstock store restore penstock.ndjson.gz --store postgresql://app@db/shop
    """
    from penstock.cli import backup_file
    from penstock.flow.backup import restore as put_back
    from penstock.wiring import in_memory

    begin, lines = backup_file.check(file)
    if check:
        _tell(session, f"{file} of {begin.store}, {begin.at}, is sound", lines)
        return
    if in_memory(session.settings()):
        raise ConfigError(IN_MEMORY, field="store")
    async with session.parts(creates=True) as parts:
        progress = show.progress("restoring")
        progress.total = sum(lines.values())
        with progress:
            done = await put_back(parts.store, backup_file.records(file), progress.add)
    _tell(session, f"{file} → {parts.store.name}", done.put, known=done.known)


@asynccontextmanager
async def opened(session: Session, url: str, *, creates: bool = False) -> AsyncIterator[Store]:
    """The store at a URL, with the settings of this call otherwise."""
    from penstock.wiring import in_memory, nothing_to_read, open_parts

    settings = session.settings({"store": url})
    if in_memory(settings):
        raise ConfigError(IN_MEMORY, field="store")
    missing = None if creates else nothing_to_read(settings)
    if missing is not None:
        raise UnknownThing(f"nothing to read: {missing}")
    async with open_parts(settings) as parts:
        yield parts.store


def _tell(
    session: Session, what: str, lines: Mapping[str, int], known: Mapping[str, int] | None = None
) -> None:
    known = {kind: number for kind, number in (known or {}).items() if number}
    if session.json:
        show.as_json({"status": "ok", "done": what, "lines": dict(lines), "known": known})
        return
    counts = [f"{number:,} × {kind}" for kind, number in lines.items() if number]
    counts += [f"{number:,} × {kind} known already" for kind, number in known.items()]
    show.as_text(f"{what}: {', '.join(counts) or 'nothing'}")
