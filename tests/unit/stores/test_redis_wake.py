"""Listening for wake-ups ends when it is cancelled, wherever redis-py swallows that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.redis_kit.wake import Wakeups

CALLS = ("subscribe", "ping", "get_message", "aclose")


class Swallowing:
    """A subscription one of whose calls swallows the first cancellation, as redis-py's may."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.reached = asyncio.Event()

    async def _do(self, call: str) -> Any:
        if call == self.call and not self.reached.is_set():
            self.reached.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return None
        if call == "get_message":
            if self.call == "aclose":
                raise ConnectionError("cut")
            await asyncio.Event().wait()
        return None

    def __getattr__(self, call: str) -> Any:
        return lambda *_, **__: self._do(call)


class Server:
    """Hands out that subscription; `client` is it, too."""

    def __init__(self, subscription: Swallowing) -> None:
        self.subscription = subscription

    def subscriber(self) -> tuple[Any, Any]:
        return self.subscription, self.subscription


@pytest.mark.parametrize("call", CALLS)
async def test_a_cancellation_that_redis_py_swallows_ends_it(call: str) -> None:
    subscription = Swallowing(call)
    server: Any = Server(subscription)
    listening = asyncio.create_task(Wakeups(server, "channel").listen())
    await subscription.reached.wait()
    listening.cancel()
    done, _ = await asyncio.wait([listening], timeout=60)
    assert done
    assert listening.cancelled()
