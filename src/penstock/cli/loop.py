"""The event loop of commands that run for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's factory if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
