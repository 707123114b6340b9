"""The store itself."""

from __future__ import annotations

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group
from penstock.model.errors import UnknownThing
from penstock.ports.store import SelfChecking

app = typer.Typer(no_args_is_help=True)
group(app, "The store itself: check, init.")


@command(app)
async def init(session: Session) -> None:
    """Make what the store needs before it is first used: a DynamoDB table with its indexes.

    Harmless to repeat: what is there stays as it is.

    \b
    Examples:
      penstock store init --config penstock.toml
    """
    from penstock.wiring import init_store

    done = await init_store(session.settings())
    if session.json:
        show.as_json({"status": "ok", "done": done})
    else:
        show.as_text(done)


@command(app)
async def check(session: Session) -> None:
    """Read the whole store and check that it is sound; exit 1 if it is not.

    \b
    Examples:
      penstock store check --config penstock.toml
    """
    async with session.parts() as parts:
        facts = await parts.store.check()
        if not isinstance(parts.store, SelfChecking):
            raise UnknownThing(f"{parts.store.name} has no check of its own")
        await parts.store.integrity()
    if session.json:
        show.as_json({"status": "ok", "store": parts.store.name, "facts": facts})
    else:
        show.as_text(f"{parts.store.name} is sound", *(f"  {k}: {v}" for k, v in facts.items()))
