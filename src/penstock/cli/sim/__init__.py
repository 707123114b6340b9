"""`penstock sim …`: stand-ins for the world around Penstock."""

from __future__ import annotations

from typing import ClassVar

import typer

from penstock.cli.help import Group
from penstock.cli.session import group
from penstock.cli.sim import crowd
from penstock.contrib import SYSTEMS, load

TITLES = {"sms": "SMS", "scheduler": "Scheduler service"}
"""A replaced system → the heading of its stand-ins, where its name is none."""


class StandIns(Group):
    """The commands under the systems they belong to."""

    panels: ClassVar[dict[str, tuple[str, ...]]] = {"Any system": ("crowd", "provider")}


app = typer.Typer(no_args_is_help=True)
group(app, "Stand-ins for the world: load, providers, senders.", cls=StandIns)
crowd.register(app)
for _name, _system in SYSTEMS.items():
    _before = len(app.registered_commands)
    for _register in _system.commands:
        load(_register)(app)
    _added = (str(each.name) for each in app.registered_commands[_before:])
    _title = TITLES.get(_name, _name.title())
    StandIns.panels[_title] = tuple(name for name in _added if name != "provider")
