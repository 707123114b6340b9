"""The store itself."""

from __future__ import annotations

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group

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

    Only SQLite has such a check; other stores are asked how they are.

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
