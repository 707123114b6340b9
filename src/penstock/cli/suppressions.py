"""Suppression lists: keys that get nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import names, show
from penstock.cli.options import Sure, read_argument
from penstock.cli.session import Session, can_ask, command, confirm, group
from penstock.model.policy import decode_suppression
from penstock.model.policy_view import suppression_out

app = typer.Typer(no_args_is_help=True)
group(app, "Keys that get no messages: opt-outs and the like.")

ListArgument = Annotated[
    str,
    typer.Argument(metavar="LIST", help="The list's id.", autocompletion=names.suppressions),
]
KeysArgument = Annotated[list[str], typer.Argument(metavar="KEY", help="The keys.")]


@command(app, "list", remote=True)
async def list_(session: Session) -> None:
    """List suppression lists, without their keys.

    \b
    Examples:
      penstock suppression list
    """
    async with session.verbs() as verbs:
        lists = await verbs.suppressions()
    written = [suppression_out(name, found, keys=False) for name, found in lists.items()]
    if session.json:
        show.as_json({"items": written, "next": None})
        return
    rows = [(str(item["id"]), "yes" if item["legal"] else "no") for item in written]
    show.table(("list", "by law"), rows, none="no suppression lists")


@command(app, "show", remote=True)
async def show_(session: Session, name: ListArgument) -> None:
    """Show one list with its keys.

    \b
    Examples:
      penstock suppression show optout
    """
    async with session.verbs() as verbs:
        found = await verbs.suppression(name)
    show.as_json(suppression_out(name, found))


@command(app, remote=True)
async def put(
    session: Session,
    name: ListArgument,
    written: Annotated[
        str,
        typer.Argument(
            metavar="JSON|@FILE|-", help="The list; @FILE reads a file, - standard input."
        ),
    ],
) -> None:
    """Create or replace a list: it has exactly these keys.

    \b
    Examples:
      penstock suppression put optout '{"keys":["user1"],"legal":true}'
    """
    checked = decode_suppression(read_argument(written, "suppression"))
    await session.creating(lambda verbs: verbs.put_suppression(name, checked))
    if session.json:
        show.as_json(suppression_out(name, checked))
    else:
        show.as_text(f"{name} is in force with {show.counted(len(set(checked.keys)), 'key')}")


@command(app, remote=True)
async def add(session: Session, name: ListArgument, keys: KeysArgument) -> None:
    """Add keys to a list.

    \b
    Examples:
      penstock suppression add optout user1 user2
    """
    async with session.verbs() as verbs:
        await verbs.suppress(name, *keys)
    _tell(session, name, f"{', '.join(keys)} added to {name}")


@command(app, remote=True)
async def remove(session: Session, name: ListArgument, keys: KeysArgument) -> None:
    """Remove keys from a list.

    \b
    Examples:
      penstock suppression remove optout user1
    """
    async with session.verbs() as verbs:
        await verbs.unsuppress(name, *keys)
    _tell(session, name, f"{', '.join(keys)} taken off {name}")


@command(app, remote=True)
async def delete(session: Session, name: ListArgument, yes: Sure = False) -> None:
    """Delete a list: its keys get messages again.

    On a terminal the command prints the number of keys and asks for confirmation.

    \b
    Examples:
      penstock suppression delete optout
    """
    async with session.verbs() as verbs:
        if not yes and can_ask():
            keys = show.counted(len(set((await verbs.suppression(name)).keys)), "key")
            confirm(f"Delete the list {show.printable(name)} with {keys}?")
        await verbs.drop_suppression(name)
    _tell(session, name, f"{name} is forgotten")


def _tell(session: Session, name: str, text: str) -> None:
    if session.json:
        show.as_json({"id": name})
    else:
        show.as_text(text)
