"""Several api and worker processes on one store, with handles to hurt them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from penstock.sim.receiver_process import ReceiverProcess, run_receiver
from tests.faults.campaign import Schedulers
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
"""


class Fleet:
    """Processes of one store; any of them may die and come back."""

    def __init__(self, receiver: ReceiverProcess, chance: random.Random) -> None:
        self.receiver = receiver
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


@asynccontextmanager
async def run_fleet(
    folder: Path,
    store: str,
    *,
    apis: int = 1,
    workers: int = 2,
    lease: str = "1s",
    seed: int = 1,
    worker_env: Mapping[str, str] | None = None,
) -> AsyncIterator[Fleet]:
    """`worker_env` is the first worker's: the odd one out."""
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(run_receiver(folder / "received.ndjson"))
        fleet = Fleet(receiver, random.Random(seed))
        config = CONFIG.format(store=store, lease=lease, sink=receiver.url, in_flight=IN_FLIGHT)
        for kind, number, among in (("api", apis, fleet.apis), ("worker", workers, fleet.workers)):
            for n in range(number):
                process = PenstockProcess(folder, config, command=kind)
                stack.push_async_callback(process.kill)
                await process.start(worker_env if (kind, n) == ("worker", 0) else None)
                among.append(process)
        yield fleet
