"""WORKER: every lane of this process, what serves them all, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping

from penstock.flow.forget import Forget
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.flow.recover import Recover
from penstock.flow.release import POLL_MS, Lane
from penstock.flow.settle import Settler
from penstock.model.chance import given_or_fresh
from penstock.model.clock import Alarm
from penstock.model.errors import PenstockError
from penstock.model.route import Route
from penstock.ports.sink import Sink
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.worker")

BATCH_SIZE = 500
LEASE_MS = 30_000
SHUTDOWN_MS = 10_000


async def greet(lane: Lane) -> None:
    """Reach the sink before there is something to send, which also lets it make its topic.

    Until it is reached, by this or by a message, messages go to it one by one.
    """
    lane.breaker.doubt()
    name, sink = lane.route.name, lane.sink
    try:
        await sink.check()
    except PenstockError as exc:
        log.warning("route %s: %s; its messages wait until that is mended", name, exc)
    except Exception:
        log.exception("route %s: sink %s could not be checked", name, sink.name)
    else:
        lane.trust()


class Worker:
    """Releases messages of the routes it is given until it is stopped."""

    def __init__(
        self,
        store: MessageStore,
        routes: Mapping[str, tuple[Route, Sink]],
        observer: Observer,
        *,
        batch_size: int = BATCH_SIZE,
        lease: int = LEASE_MS,
        poll: int = POLL_MS,
        shutdown: int = SHUTDOWN_MS,
        chance: random.Random | None = None,
        policies: Policies | None = None,
    ) -> None:
        chance = given_or_fresh(chance)
        self._store = store
        self._shutdown = shutdown
        self._policies = policies
        self._settler = Settler(store, observer, policies)
        self.lanes = {
            name: Lane(
                route,
                sink,
                store,
                self._settler,
                observer,
                chance,
                batch_size=batch_size,
                lease=lease,
                poll=poll,
                policies=policies,
            )
            for name, (route, sink) in routes.items()
        }
        self._recover = Recover(store, observer, self._held, lease=lease)
        self._forget = Forget(store, observer)
        self._stop = Alarm(store.clock)
        store.listen(self._wake)

    async def run(self) -> None:
        """Until stop() or cancellation; returns when nothing is in flight any more."""
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(self._settler.run()),
                group.create_task(self._recover.run()),
                group.create_task(self._forget.run()),
                *(group.create_task(greet(lane)) for lane in self.lanes.values()),
            ]
            if self._policies is not None:
                helpers.append(group.create_task(self._policies.run()))
            claiming = [group.create_task(lane.run()) for lane in self.lanes.values()]
            try:
                await self._stop.wait()
            finally:
                for lane in self.lanes.values():
                    lane.stop()
                await asyncio.shield(self._finish(claiming))
                for task in helpers:
                    task.cancel()

    def stop(self) -> None:
        """Claim no more, finish or give back what is in flight, then let run() return."""
        self._stop.ring()

    async def _finish(self, claiming: list[asyncio.Task[None]]) -> None:
        deadline = self._store.clock.now() + self._shutdown
        await asyncio.gather(*claiming, return_exceptions=True)
        await asyncio.gather(*(lane.finish(deadline) for lane in self.lanes.values()))
        await self._settler.drain(deadline)

    def _held(self) -> list[int]:
        return [token for lane in self.lanes.values() for token in lane.tokens]

    def _wake(self, route: str, due: int) -> None:
        lane = self.lanes.get(route)
        if lane is not None:
            lane.wake(due)
