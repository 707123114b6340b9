"""Messages that are dead, without a sink that refuses them."""

from __future__ import annotations

from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore


async def kill_all(store: MessageStore, route: str = "default", error: str = "no") -> None:
    """Everything due of the route dies of this error."""
    claim = await store.claim(route, 100, 30_000, store.clock.now())
    ends = [
        Settlement(message=m, token=claim.token, state=State.DEAD, event="dead", error=error)
        for m in claim.messages
    ]
    await store.settle(ends, store.clock.now())
