"""Messages that are dead, without a sink that refuses them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.model.message import NewMessage
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.settings import Settings
from penstock.wiring import open_store


async def kill_all(store: MessageStore, route: str = "default", error: str = "no") -> None:
    """Everything due of the route dies of this error."""
    claim = await store.claim(route, 100, 30_000, store.clock.now())
    ends = [
        Settlement(message=m, token=claim.token, state=State.DEAD, event="dead", error=error)
        for m in claim.messages
    ]
    await store.settle(ends, store.clock.now())


def die(folder: Path, *ids: str) -> None:
    """Messages of key k in the folder's penstock.db that are dead of HTTP 410."""

    async def put_and_kill() -> None:
        store = (await open_store(Settings(store=f"sqlite:///{folder / 'penstock.db'}"))).messages
        try:
            now = store.clock.now()
            new = [
                NewMessage(id=one, route="default", key="k", payload=b"1", due=now) for one in ids
            ]
            await store.put(new, now)
            await kill_all(store, error="HTTP 410")
        finally:
            await store.close()

    asyncio.run(put_and_kill())
