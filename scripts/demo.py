"""`make demo`: Penstock with simulated traffic, so that there is something to see, until Ctrl-C.

A fleet of three on a temporary SQLite file (a server with a worker, two more workers), receivers of
webhooks that are slow, busy, broken or away now and then, policies that defer and block some
messages, recurring rules, and a crowd before a waiting room.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.process import Roles, run_process
from penstock.model.errors import ConfigError, PenstockError
from penstock.model.ticket import TicketState
from penstock.sdk.async_client import AsyncClient
from penstock.sdk.async_rooms import AsyncRooms
from penstock.settings import load
from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from penstock.sim.requests import Received

PER_SECOND = 40
TICK = 0.2
"""Seconds between two handfuls."""
SPANS = (20.0, 300.0, 36 * 3600.0)
SHARES = (0.796, 0.2, 0.004)
"""How far ahead messages are scheduled: mean seconds, and the share of each."""
DAYS = 7
START = 5.0
"""Seconds: nothing is due before the processes run."""
CHANNELS = ("push", "sms", "email", "partner")
WEIGHTS = (5, 3, 3, 1)
KINDS = ("promotional", "transactional", "digest")
KIND_WEIGHTS = (60, 39, 1)
AWAY_EVERY, AWAY_FOR = 300.0, 20.0
"""Seconds: how often the partner's endpoint does not answer, and how long."""
ROOM = "sale"
VISITORS_A_SECOND = 1.6
MOST_VISITORS = 400
POLICIES: dict[str, dict[str, object]] = {
    "two-a-minute": {
        "kind": "cap",
        "scope": ["key"],
        "limit": 2,
        "window": "1m",
        "on_exceed": "DEFER",
        "applies_to": {"class": ["promotional"]},
        "bypass": ["transactional"],
    },
    "newsletter-budget": {
        "kind": "cap",
        "scope": ["campaign"],
        "limit": 120,
        "window": "1m",
        "on_exceed": "BLOCK",
        "applies_to": {"campaign": ["newsletter"]},
    },
    "sms-provider": {
        "kind": "pace",
        "rate": "16/s",
        "burst": 16,
        "applies_to": {"route": ["sms"]},
    },
    "nights": {
        "kind": "quiet",
        "from": "22:00",
        "to": "07:00",
        "applies_to": {"class": ["digest"]},
    },
    "one-an-hour": {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h", "shadow": True},
}
RECURRING: dict[str, dict[str, Any]] = {
    "heartbeat": {"every": "1m", "route": "partner", "overlap": "skip"},
    "price-list": {"every": "5m", "route": "partner", "jitter": "30s"},
    "quarter-hour": {"cron": "*/15 * * * *", "route": "email"},
    "daily-report": {"cron": "0 9 * * mon-fri", "zone": "Europe/Berlin", "route": "email"},
    "month-end": {"cron": "0 18 L * *", "zone": "Asia/Seoul", "route": "email"},
    "spring-campaign": {"every": "5m", "route": "push", "paused": True},
}
WORKERS = 2
"""Processes beside the server's own worker."""
HOT_USERS = 240
"""They get a quarter of everything: just less than the cap lets through."""
ZONES = ("Asia/Seoul", "Europe/Berlin", "America/New_York", "America/Los_Angeles")
"""Of those who get digests: somebody always sleeps."""
OPTED_OUT = [f"user-{number}" for number in range(1, 5_000, 60)]


class Moody(Receiver):
    """Mostly good; sometimes busy, broken, or no longer interested."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def take(self, request: Received) -> Reply:
        await super().take(request)
        self.received.clear()  # a demo runs for hours
        mood = self._chance.random()
        if mood < 0.05:
            return Reply(status=500, body="out of order")
        if mood < 0.07:
            return Reply(status=429, headers={"retry-after": "2"}, body="too fast")
        if mood < 0.075:
            return Reply(status=410, body="nobody lives here")
        if mood < 0.078:
            return Reply(status=422, body="template welcome-2 has no field name")
        return Reply(delay=self._chance.expovariate(1 / 0.02))


class Traffic:
    """Schedules a mixture of messages, and changes its mind about a few of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def run(self, client: AsyncClient) -> None:
        while True:
            outcomes = await client.schedule_many(self._some())
            for outcome in outcomes:
                if not isinstance(outcome, PenstockError) and self._chance.random() < 0.02:
                    await self._change_of_mind(client, outcome.id)
            await asyncio.sleep(TICK)

    def _some(self) -> Iterator[dict[str, Any]]:
        number = PER_SECOND * TICK
        for _ in range(round(self._chance.uniform(number / 2, number * 3 / 2))):
            (span,) = self._chance.choices(SPANS, SHARES)
            yield self._message(self._delay(span))

    async def seed(self, store: str) -> None:
        """As if it had run for days: charts begin without a leap and pending stays as it is."""
        async with penstock.open(store) as engine:
            for span, share in zip(SPANS, SHARES, strict=True):
                count = round(PER_SECOND * share * span)
                await engine.schedule_many(
                    self._message(START + self._delay(span)) for _ in range(count)
                )

    def _delay(self, span: float) -> float:
        """Seconds; what is far ahead comes in waves, as people plan things."""
        while True:
            delay = min(DAYS * 86_400, self._chance.expovariate(1 / span))
            wave = 1 + 0.8 * math.sin((time.time() + delay) / 3600 * math.tau / 12)
            if span < 3600 or self._chance.random() * 1.8 < wave:
                return delay

    def _message(self, delay: float) -> dict[str, Any]:
        (channel,) = self._chance.choices(CHANNELS, WEIGHTS)
        hot = self._chance.random() < 0.25  # a few people get more of it
        user = self._chance.randint(1, HOT_USERS if hot else 5_000)
        (kind,) = self._chance.choices(KINDS, KIND_WEIGHTS)
        labels = {"channel": channel, "class": kind}
        if kind == "promotional" and channel == "email":
            labels["campaign"] = "newsletter"
        if kind == "digest":
            labels["tz"] = self._chance.choice(ZONES)
        patience = 86_400 if kind == "digest" else 900  # a digest may wait for the morning
        return {
            "payload": {"user": user, "text": f"hello by {channel}"},
            "route": channel,
            "key": f"user-{user}",
            "delay": round(delay, 3),
            "priority": self._chance.choice((1, 5, 5, 5, 9)),
            "headers": {"x-tenant": self._chance.choice(("north", "south"))},
            "expires": datetime.now(UTC) + timedelta(seconds=delay + patience),
            "labels": labels,
        }

    async def _change_of_mind(self, client: AsyncClient, message_id: str) -> None:
        try:
            if self._chance.random() < 0.5:
                await client.cancel(message_id)
            else:
                await client.reschedule(message_id, delay="1m")
        except PenstockError:
            return  # it has left already: nobody minds


class Crowd:
    """People who line up, enter, look around and leave; some lose patience or forget."""

    def __init__(self, chance: random.Random, rooms: AsyncRooms) -> None:
        self._chance = chance
        self._rooms = rooms
        self._number = 0

    async def run(self) -> None:
        await self._rooms.put(
            ROOM, capacity=40, admit_rate="3/s", claim_ttl="20s", session_ttl="2m"
        )
        visitors: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                if len(visitors) < MOST_VISITORS:
                    visitor = tasks.create_task(self._visit())
                    visitors.add(visitor)
                    visitor.add_done_callback(visitors.discard)
                await asyncio.sleep(self._chance.expovariate(VISITORS_A_SECOND))

    async def _visit(self) -> None:
        self._number += 1
        user = f"visitor-{self._number}"
        rooms = self._rooms
        with contextlib.suppress(PenstockError):  # the server may be stopping
            place = await rooms.join(ROOM, user)
            while place.state is TicketState.WAITING:
                if self._chance.random() < 0.004:
                    await rooms.leave(ROOM, user)
                    return
                await asyncio.sleep(max(1.0, place.poll_after_ms / 1000))
                place = await rooms.ticket(ROOM, user)
            if place.token is None or self._chance.random() < 0.08:
                return  # forgot the tab: the slot goes to the next after claim_ttl
            await rooms.enter(ROOM, place.token)
            await asyncio.sleep(self._chance.uniform(10, 45))
            await rooms.leave(ROOM, user)


async def away_now_and_then(receiver: Receiver) -> None:
    while True:
        await asyncio.sleep(AWAY_EVERY)
        await receiver.down()
        await asyncio.sleep(AWAY_FOR)
        await receiver.up()


@contextlib.asynccontextmanager
async def workers(overrides: dict[str, object]) -> AsyncIterator[None]:
    """More processes on the same store; they end with the demo."""
    named = {
        f"PENSTOCK_{name.replace('.', '__').upper()}": value for name, value in overrides.items()
    }
    told = {name: str(value) for name, value in named.items() if not isinstance(value, dict)}
    command = [sys.executable, "-m", "penstock", "worker"]
    env = {**os.environ, **told}
    quiet = asyncio.subprocess.DEVNULL
    started = [
        await asyncio.create_subprocess_exec(*command, env=env, stdout=quiet)
        for _ in range(WORKERS)
    ]
    try:
        yield
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):  # Ctrl-C has reached it already
                process.terminate()
        for process in started:
            await process.wait()


async def world(
    url: str,
    token: str | None,
    steady: Receiver,
    fickle: Receiver,
    overrides: dict[str, object],
) -> None:
    """Everything that stands around the server, until it stops."""
    chance = random.Random()
    async with (
        steady,
        fickle,
        AsyncClient(url, token=token) as client,
        workers(overrides),
        asyncio.TaskGroup() as tasks,
    ):
        await client.put_suppression("optout", {"keys": OPTED_OUT, "legal": True})
        for name, rule in RECURRING.items():
            payload = {"rule": name}
            await client.recurring.put(name, **{"payload": payload, **rule})
        tasks.create_task(Traffic(chance).run(client))
        tasks.create_task(Crowd(chance, client.rooms).run())
        tasks.create_task(away_now_and_then(fickle))


def configuration(folder: str, steady: Receiver, fickle: Receiver) -> dict[str, object]:
    overrides: dict[str, object] = {
        "store": f"sqlite:///{Path(folder) / 'demo.db'}",
        "log.level": "error",
        "limits.dead_retention": "30m",
        "policies": POLICIES,
    }
    for channel in CHANNELS:
        receiver = fickle if channel == "partner" else steady
        overrides[f"routes.{channel}.sink"] = f"{receiver.url}/{channel}"
        overrides[f"routes.{channel}.backoff"] = "500ms..10s"
        overrides[f"routes.{channel}.max_attempts"] = 3 if channel == "email" else 8
    return overrides


def main() -> int:
    chance = random.Random()
    steady, fickle = Moody(chance), Moody(chance)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        try:
            overrides = configuration(folder, steady, fickle)
            settings = load(None, overrides)
            asyncio.run(Traffic(chance).seed(settings.store))
            tokens = [token.secret.get_secret_value() for token in settings.api.tokens]
            print(f"Simulated traffic, about {PER_SECOND} messages a second; Ctrl-C ends it")
            run_process(
                settings,
                Roles(api=True, worker=True),
                beside=lambda url: world(
                    url, tokens[0] if tokens else None, steady, fickle, overrides
                ),
            )
        except ConfigError as exc:
            print(f"penstock: {exc.message}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
