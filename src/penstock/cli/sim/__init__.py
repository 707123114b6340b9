"""`penstock sim …`: stand-ins for the world around Penstock."""

from __future__ import annotations

import typer

from penstock.cli.session import group
from penstock.cli.sim import crowd
from penstock.contrib import SYSTEMS, load

app = typer.Typer(no_args_is_help=True)
group(app, "Stand-ins for the world: load, providers, senders.")
crowd.register(app)
for _system in SYSTEMS.values():
    for _register in _system.commands:
        load(_register)(app)
