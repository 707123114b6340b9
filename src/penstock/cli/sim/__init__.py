"""`penstock sim …`: what stands in for the world around Penstock."""

from __future__ import annotations

import typer

from penstock.cli.session import group
from penstock.cli.sim import broker, crowd, decisions, events, provider, sms, ticks

app = typer.Typer(no_args_is_help=True)
group(app, "Stand-ins for the world: load, providers, senders.")
ticks.register(app)
decisions.register(app)
provider.register(app)
sms.register(app)
crowd.register(app)
events.register(app)
broker.register(app)
