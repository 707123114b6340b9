"""WAKE-UPS: one connection that listens for earlier messages put by other processes.

The only one that needs a session of its own: behind PgBouncer in transaction mode it receives
nothing unless `listen` in the address leads past it, and workers find the messages of other
processes by polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

import psycopg
from psycopg import sql

from penstock.stores.postgres.address import Address
from penstock.stores.postgres.floors import ANYWHERE, behind
from penstock.stores.postgres.session import Session

log = logging.getLogger("penstock.stores.postgres")

Heard: TypeAlias = Callable[[str, int], None]
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two tries to connect."""


def channel_of(address: Address) -> str:
    return f"{address.schema}_wake"


class News:
    """The wake-ups a transaction sends at its end: routes with a message due earlier than
    before.
    """

    def __init__(self, address: Address, epoch: int) -> None:
        self._channel = channel_of(address)
        self._epoch = epoch
        self._heads: dict[str, int] = {}
        """Route → the first due when this process last read it. Entries before it are dead; a
        message put there since causes at most one superfluous wake-up.
        """

    def send(self, session: Session) -> Callable[[], None]:
        """Find the routes to wake within the transaction: most puts are behind others and send
        nothing.

        Call the returned function after the commit.
        """
        asked = []
        for route, due in session.wakes.items():
            news = f"{self._epoch} {due} {route}"
            values = {"channel": self._channel, "news": news, "route": route, "due": due}
            head = self._heads.get(route)
            floor = ANYWHERE if head is None else behind(head)
            asked.append((route, due, session.ask("notify", {**values, **floor})))

        def sent() -> None:
            for route, due, cursor in asked:
                first = cursor.fetchone()
                head = due if first is None or first[0] is None else first[0]
                self._heads[route] = min(due, head)

        return sent


async def listen(address: Address, epoch: int, heard: Heard) -> None:
    """Listen until cancelled; reconnect for as long as it takes."""
    failures = 0
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                address.for_listening, autocommit=True, prepare_threshold=None
            ) as connection:
                channel = sql.Identifier(channel_of(address))
                await connection.execute(sql.SQL("LISTEN {}").format(channel))
                failures = 0
                async for notice in connection.notifies():
                    sender, due, route = notice.payload.split(" ", 2)
                    if sender != str(epoch):  # our own lanes were woken at once
                        heard(route, int(due))
        except (psycopg.Error, ValueError) as exc:
            log.debug("wake-ups of other processes are not heard: %s", exc)
        await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        failures += 1
