"""Several api and worker processes on one store, with handles to hurt them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.sim.receiver_process import run_receiver
from tests.faults.campaign import Schedulers, WebhookWitness, Witness
from tests.servers.penstock import PenstockProcess

IN_FLIGHT = 20
"""Sends a worker has under way at most: what one kill can repeat."""
CONFIG = """
store = "{store}"
[api]
http = "127.0.0.1:@PORT@"
[worker]
lease = "{lease}"
[routes.hook]
sink = "{sink}"
semaphore_limit = {in_flight}
backoff = "100ms..500ms"
max_attempts = 1000
{more}
"""


class Fleet:
    """Processes of one store; any of them may die and come back."""

    def __init__(self, witness: Witness, chance: random.Random) -> None:
        self.witness = witness
        self.chance = chance
        self.apis: list[PenstockProcess] = []
        self.workers: list[PenstockProcess] = []

    @property
    def processes(self) -> list[PenstockProcess]:
        return [*self.apis, *self.workers]

    @property
    def urls(self) -> list[str]:
        return [api.url for api in self.apis]

    def clients(self) -> Schedulers:
        return Schedulers(self.urls, self.chance)

    async def kill_one(self, among: Sequence[PenstockProcess]) -> None:
        """kill -9 one of them, and start it again."""
        victim = self.chance.choice(list(among))
        await victim.kill()
        await asyncio.sleep(self.chance.random() * 0.3)
        await victim.start()


class Destination(NamedTuple):
    """Where the route `hook` leads, and who looks what comes there."""

    sink: str
    witness: Witness
    more: str = ""
    """Further lines of the route's settings."""


def clock_off_by(seconds: str) -> dict[str, str]:
    """The environment of a process whose clock is wrong by "+300" or "-300" seconds."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))  # by install-servers
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@asynccontextmanager
async def run_fleet(
    folder: Path,
    store: str,
    *,
    to: Destination | None = None,
    apis: int = 1,
    workers: int = 2,
    lease: str = "3s",
    seed: int = 1,
    worker_env: Mapping[str, str] | None = None,
) -> AsyncIterator[Fleet]:
    """Without a destination: to webhooks. `worker_env` is the first worker's: the odd one out."""
    async with AsyncExitStack() as stack:
        if to is None:
            receiver = await stack.enter_async_context(run_receiver(folder / "received.ndjson"))
            to = Destination(receiver.url, WebhookWitness(receiver))
        fleet = Fleet(to.witness, random.Random(seed))
        config = CONFIG.format(
            store=store, lease=lease, sink=to.sink, more=to.more, in_flight=IN_FLIGHT
        )
        for kind, number, among in (("api", apis, fleet.apis), ("worker", workers, fleet.workers)):
            for n in range(number):
                process = PenstockProcess(folder, config, command=kind)
                stack.push_async_callback(process.kill)
                await process.start(worker_env if (kind, n) == ("worker", 0) else None)
                among.append(process)
        yield fleet
