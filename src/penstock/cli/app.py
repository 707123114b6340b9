"""The command line put together."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli import (
    bench,
    changes,
    config,
    dead,
    messages,
    monitor,
    policies,
    rooms,
    routes,
    serve,
    sim,
    store,
    suppressions,
)
from penstock.cli.session import group, json_error
from penstock.version import __version__

HELP = """Hold it, pace it, let it through.

Messages that go out later, slower or in turn. Commands act on the store of the settings, or with
--url on a running server.
"""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", help="Show the version.", is_eager=True, callback=_version),
]


class Commands(TyperGroup):
    """With --json wrong usage is told in JSON too, as every other error is."""

    def main(self, *given: Any, **options: Any) -> Any:
        args = (given[0] if given else options.get("args")) or sys.argv[1:]
        if "--json" not in args:
            return super().main(*given, **options)
        try:
            code = super().main(*given, **{**options, "standalone_mode": False})
        except typer.TyperException as exc:
            print(json_error("usage", exc.format_message()), file=sys.stderr)
            sys.exit(exc.exit_code)
        except typer.Abort:
            sys.exit(1)
        sys.exit(code or 0)


def build() -> typer.Typer:
    app = typer.Typer(
        cls=Commands,
        name="penstock",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # it would print local variables, and so secrets
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group(app, HELP, {"version": (VersionOption, False)})
    serve.register(app)
    messages.register(app)
    changes.register(app)
    monitor.register(app)
    bench.register(app)
    app.add_typer(dead.app, name="dead")
    app.add_typer(routes.app, name="route")
    app.add_typer(policies.app, name="policy")
    app.add_typer(suppressions.app, name="suppression")
    app.add_typer(rooms.app, name="room")
    app.add_typer(config.app, name="config")
    app.add_typer(store.app, name="store")
    app.add_typer(sim.app, name="sim")
    return app
