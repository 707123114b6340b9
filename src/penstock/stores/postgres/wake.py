"""WAKE-UPS: one connection that listens for what other processes bring nearer.

The only one that needs a session of its own: behind PgBouncer in transaction mode it hears
nothing unless `listen` in the address leads past it, and the workers' own looking is what finds the
messages of others.
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
    """What a transaction says at its end: which routes have something due earlier than before."""

    def __init__(self, address: Address, epoch: int) -> None:
        self._channel = channel_of(address)
        self._epoch = epoch
        self._heads: dict[str, int] = {}
        """Route → what was due first when this process looked last. Entries before it are dead;
        something that came there since makes at most one wake-up too many."""

    def send(self, session: Session) -> Callable[[], None]:
        """Asked of the server in the transaction: most puts come behind others and say nothing.

        Call what this returns after the commit.
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
    """Until cancelled; connects again for as long as it takes."""
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
                    if sender != str(epoch):  # our own were told at once
                        heard(route, int(due))
        except (psycopg.Error, ValueError) as exc:
            log.debug("wake-ups of other processes are not heard: %s", exc)
        await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
        failures += 1
