"""`make demo`: Penstock with simulated traffic, so that there is something to see, until Ctrl-C.

Everything is in this one process and in a temporary folder: a server, and a receiver of webhooks
that is slow, busy or broken now and then.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.cli.process import Roles, run_process
from penstock.model.errors import ConfigError, PenstockError
from penstock.sdk.async_client import AsyncClient
from penstock.settings import load
from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from penstock.sim.requests import Received

PER_SECOND = 20
CHANNELS = ("push", "sms", "email")


class Moody(Receiver):
    """Mostly good; sometimes busy, broken, or no longer interested."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def take(self, request: Received) -> Reply:
        await super().take(request)
        self.received.clear()  # a demo runs for hours
        mood = self._chance.random()
        if mood < 0.06:
            return Reply(status=500, body="out of order")
        if mood < 0.09:
            return Reply(status=429, headers={"retry-after": "2"}, body="too fast")
        if mood < 0.10:
            return Reply(status=410, body="nobody lives here")
        return Reply(delay=self._chance.expovariate(1 / 0.02))


class Traffic:
    """Schedules a mixture of messages, and changes its mind about a few of them."""

    def __init__(self, receiver: Receiver, chance: random.Random) -> None:
        self._receiver = receiver
        self._chance = chance

    async def run(self, url: str, token: str | None) -> None:
        async with self._receiver, AsyncClient(url, token=token) as client:
            while True:
                outcomes = await client.schedule_many(self._second())
                for outcome in outcomes:
                    if not isinstance(outcome, PenstockError) and self._chance.random() < 0.04:
                        await self._change_of_mind(client, outcome.id)
                await asyncio.sleep(1)

    def _second(self) -> Iterator[dict[str, Any]]:
        for _ in range(self._chance.randint(PER_SECOND // 2, PER_SECOND * 3 // 2)):
            channel = self._chance.choice(CHANNELS)
            delay = min(600.0, self._chance.expovariate(1 / 20))
            user = self._chance.randint(1, 5_000)
            yield {
                "payload": {"user": user, "text": f"hello by {channel}"},
                "route": channel,
                "key": f"user-{user}",
                "delay": round(delay, 3),
                "priority": self._chance.choice((1, 5, 5, 5, 9)),
                "expires": datetime.now(UTC) + timedelta(seconds=delay + 900),
                "labels": {"channel": channel, "class": "promotional"},
            }

    async def _change_of_mind(self, client: AsyncClient, message_id: str) -> None:
        try:
            if self._chance.random() < 0.5:
                await client.cancel(message_id)
            else:
                await client.reschedule(message_id, delay="1m")
        except PenstockError:
            return  # it has left already: nobody minds


def main() -> int:
    chance = random.Random()
    receiver = Moody(chance)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        overrides: dict[str, object] = {
            "store": f"sqlite:///{Path(folder) / 'demo.db'}",
            "log.level": "error",
        }
        for channel in CHANNELS:
            overrides[f"routes.{channel}.sink"] = f"{receiver.url}/{channel}"
            overrides[f"routes.{channel}.backoff"] = "500ms..10s"
        try:
            settings = load(None, overrides)
            tokens = [token.secret.get_secret_value() for token in settings.api.tokens]
            traffic = Traffic(receiver, chance)
            print(f"Simulated traffic, about {PER_SECOND} messages a second; Ctrl-C ends it")
            run_process(
                settings,
                Roles(api=True, worker=True),
                beside=lambda url: traffic.run(url, tokens[0] if tokens else None),
            )
        except ConfigError as exc:
            print(f"penstock: {exc.message}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
