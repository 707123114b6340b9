"""The composition root: settings → parts. The only package that knows every driver."""

from penstock.wiring.parts import Parts, open_parts, policies_of, put_configured
from penstock.wiring.problems import driver_problems
from penstock.wiring.rooms import open_rooms
from penstock.wiring.sinks import handler_sink, init_routes, open_sink
from penstock.wiring.sources import open_sources
from penstock.wiring.stores import (
    in_memory,
    init_store,
    nothing_to_read,
    on_server,
    open_store,
    scratch_store,
)
from penstock.wiring.worker import open_worker

__all__ = [
    "Parts",
    "driver_problems",
    "handler_sink",
    "in_memory",
    "init_routes",
    "init_store",
    "nothing_to_read",
    "on_server",
    "open_parts",
    "open_rooms",
    "open_sink",
    "open_sources",
    "open_store",
    "open_worker",
    "policies_of",
    "put_configured",
    "scratch_store",
]
