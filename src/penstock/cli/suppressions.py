"""Suppression lists: keys that get nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.policies import read_argument
from penstock.cli.session import Session, command, group
from penstock.model.policy import decode_suppression
from penstock.model.policy_view import suppression_out

app = typer.Typer(no_args_is_help=True)
group(app, "Keys that get nothing: opt-outs and the like.")

ListArgument = Annotated[str, typer.Argument(metavar="LIST", help="The list's id.")]
KeysArgument = Annotated[list[str], typer.Argument(metavar="KEY...", help="Whom it is about.")]


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
        str, typer.Argument(metavar="JSON", help="The list, @FILE to read it, or - for stdin.")
    ],
) -> None:
    """Keep a list with exactly these keys.

    \b
    Examples:
      penstock suppression put optout '{"keys":["user1"],"legal":true}'
    """
    checked = decode_suppression(read_argument(written, "suppression"))
    async with session.verbs(creates=True) as verbs:
        await verbs.put_suppression(name, checked)
    if session.json:
        show.as_json(suppression_out(name, checked))
    else:
        show.as_text(f"{name} is in force with {len(set(checked.keys))} keys")


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
    """Take keys off a list.

    \b
    Examples:
      penstock suppression remove optout user1
    """
    async with session.verbs() as verbs:
        await verbs.unsuppress(name, *keys)
    _tell(session, name, f"{', '.join(keys)} taken off {name}")


@command(app, remote=True)
async def delete(session: Session, name: ListArgument) -> None:
    """Forget a list.

    \b
    Examples:
      penstock suppression delete optout
    """
    async with session.verbs() as verbs:
        await verbs.drop_suppression(name)
    _tell(session, name, f"{name} is forgotten")


def _tell(session: Session, name: str, text: str) -> None:
    if session.json:
        show.as_json({"id": name})
    else:
        show.as_text(text)
