"""The command line put together."""

from __future__ import annotations

import sys
from typing import Annotated, Any, ClassVar

import typer

from penstock.cli import (
    bench,
    changes,
    config,
    dead,
    doctor,
    init,
    messages,
    monitor,
    policies,
    recurring,
    rooms,
    routes,
    serve,
    show,
    sim,
    size,
    status,
    store,
    suppressions,
)
from penstock.cli.help import Command, Group
from penstock.cli.session import Session, command, group, json_error
from penstock.version import __version__

HELP = """Hold it, pace it, let it through.

Messages that go out later, slower or in turn. Commands act on the store of the settings, or with
--url on a running server. Each explains itself: penstock help COMMAND.
"""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", help="Show the version.", is_eager=True, callback=_version),
]


def version(session: Session) -> None:
    """Show the version.

    \b
    Examples:
      penstock version
    """
    if session.json:
        show.as_json({"version": __version__})
    else:
        show.as_text(f"penstock {__version__}")


def help_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Such as: dead redrive.")
    ] = None,
) -> None:
    """Explain a command.

    \b
    Examples:
      penstock help dead redrive
    """
    root = ctx.find_root()
    root.command.main([*(words or ()), "--help"], prog_name=root.info_name)


class Commands(Group):
    """Every command; with --json a usage error is JSON too."""

    panels: ClassVar[dict[str, tuple[str, ...]]] = {
        "Run": ("serve", "api", "worker", "init", "doctor"),
        "Messages": (
            *("schedule", "get", "list", "cancel", "reschedule", "release", "forget"),
            *("dead", "recurring"),
        ),
        "Rules": ("policy", "suppression"),
        "Rooms": ("room",),
        "Operate": ("status", "monitor", "route", "store", "config"),
        "Try": ("bench", "size", "sim"),
        "More": ("help", "version"),
    }

    def main(self, *args: Any, **options: Any) -> Any:
        words = (args[0] if args else options.get("args")) or sys.argv[1:]
        if "--json" not in words:
            return super().main(*args, **options)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except typer.TyperException as exc:
            print(json_error("usage", exc.format_message()), file=sys.stderr)
            sys.exit(exc.exit_code)
        except typer.Abort:
            sys.exit(1)
        sys.exit(code or 0)


def _by_noun() -> typer.Typer:
    """Make the nouns, so that `penstock message list` works as `penstock room list` does."""
    app = typer.Typer(no_args_is_help=True)
    group(app, "Messages: the same as `penstock schedule`, `penstock get` and so on.")
    messages.register(app)
    changes.register(app)
    return app


def build() -> typer.Typer:
    app = typer.Typer(
        name="penstock",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # it would print local variables, and so secrets
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group(app, HELP, {"version": (VersionOption, False)}, cls=Commands)
    for part in (serve, init, doctor, messages, changes, status, monitor, bench, size):
        part.register(app)
    command(app)(version)
    app.command("help", cls=Command, short_help="Explain a command.")(help_)
    app.add_typer(_by_noun(), name="message", hidden=True)
    app.add_typer(dead.app, name="dead")
    app.add_typer(routes.app, name="route")
    app.add_typer(recurring.app, name="recurring")
    app.add_typer(policies.app, name="policy")
    app.add_typer(suppressions.app, name="suppression")
    app.add_typer(rooms.app, name="room")
    app.add_typer(config.app, name="config")
    app.add_typer(store.app, name="store")
    app.add_typer(sim.app, name="sim")
    return app
