"""The command line put together."""

from __future__ import annotations

import typer

from penstock.cli import config, dead, messages, routes, serve, sim, store
from penstock.cli.session import group

HELP = """Hold it, pace it, let it through.

Messages that go out later, slower or in turn. Commands act on the store of the settings, or with
--url on a running server.
"""


def build() -> typer.Typer:
    app = typer.Typer(
        name="penstock",
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # it would print local variables, and so secrets
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group(app, HELP)
    serve.register(app)
    messages.register(app)
    app.add_typer(dead.app, name="dead")
    app.add_typer(routes.app, name="route")
    app.add_typer(config.app, name="config")
    app.add_typer(store.app, name="store")
    app.add_typer(sim.app, name="sim")
    return app
