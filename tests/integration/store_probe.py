"""A store that can be watched and held back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt
from penstock.ports.store import MessageStore


class StoreProbe:
    """Stands before a real store: counts put calls, and can hold them back or refuse them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.puts: list[int] = []
        """How many messages each call brought."""
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        self.puts.append(len(messages))
        self.called.set()
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return await self._store.put(messages, now)
