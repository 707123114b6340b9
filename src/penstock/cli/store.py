"""The store itself."""

from __future__ import annotations

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group

app = typer.Typer(no_args_is_help=True)
group(app, "The store itself: check, init, migrate.")


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
