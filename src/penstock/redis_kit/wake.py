"""Wake-ups: scripts publish that a message is due sooner, and every process listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from redis.asyncio.client import PubSub

from penstock.model.message import Message, NewMessage
from penstock.ports.store import WakeListener
from penstock.redis_kit.connect import Server, heeding
from penstock.redis_kit.errors import Vendor

log = logging.getLogger("penstock.stores.redis")

SILENCE = 5.0
"""Seconds without a publication before the connection is checked."""
RECONNECT = (0.1, 0.5, 1.0, 2.0)


class Wakeups:
    """Calls this process's listeners for its own puts and for those that others publish."""

    def __init__(self, server: Server, channel: str) -> None:
        self._server = server
        self.channel = channel
        self._listeners: list[WakeListener] = []
        self.subscribed = asyncio.Event()
        """Set while publications of other processes are received."""

    def add(self, listener: WakeListener) -> None:
        self._listeners.append(listener)

    def tell(self, route: str, due: int) -> None:
        for listener in self._listeners:
            listener(route, due)

    def tell_earliest(self, messages: Sequence[NewMessage | Message]) -> None:
        """Call the listeners once per route, with its earliest due."""
        if not self._listeners:
            return
        earliest: dict[str, int] = {}
        for message in messages:
            due = earliest.get(message.route)
            if due is None or message.due < due:
                earliest[message.route] = message.due
        for route, due in earliest.items():
            self.tell(route, due)

    async def listen(self) -> None:
        """Subscribe until cancelled; polling covers publications missed during a reconnect.

        redis-py may swallow a cancellation, while it connects for one: each call heeds it.
        """
        failed = 0
        while True:
            pubsub, client = self._server.subscriber()
            try:
                await heeding(self._before_subscribing(pubsub))
                await heeding(pubsub.subscribe(self.channel))
                await heeding(pubsub.ping())
                self.subscribed.set()
                failed = 0
                while True:
                    news = await heeding(pubsub.get_message(timeout=SILENCE))
                    if news is None:
                        await heeding(pubsub.ping())
                    elif news["type"] == "message":
                        self._heard(news["data"])
            except Vendor as exc:
                log.debug("wake-ups interrupted, polling continues while reconnecting: %s", exc)
            finally:
                self.subscribed.clear()
                await heeding(pubsub.aclose())  # type: ignore[no-untyped-call]
                await heeding(client.aclose(close_connection_pool=True))
            await asyncio.sleep(RECONNECT[min(failed, len(RECONNECT) - 1)])
            failed += 1

    async def _before_subscribing(self, pubsub: PubSub) -> None:
        """Send commands that the connection needs first; none by default."""

    def _heard(self, news: bytes) -> None:
        due, _, route = news.decode().partition(" ")
        if due.isdigit():
            self.tell(route, int(due))


def news_of(route: str, due: int) -> str:
    return f"{due} {route}"
