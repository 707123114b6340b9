"""WORKER: every lane of this process, the tasks that serve them all, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.flow.erase import Erase
from penstock.flow.forget import Forget
from penstock.flow.observe import Contact, Observer
from penstock.flow.policies import Policies
from penstock.flow.recover import Recover
from penstock.flow.recur import Planter
from penstock.flow.release import POLL_MS, InFlight, Lane, Lanes
from penstock.flow.settle import Settler
from penstock.model.errors import ConfigError, PenstockError
from penstock.model.route import Route
from penstock.model.size import IN_FLIGHT_BYTES
from penstock.ports.sink import Sink
from penstock.ports.store import Store
from penstock.time.chance import given_or_fresh
from penstock.time.clock import Alarm

log = logging.getLogger("penstock.worker")

BATCH_SIZE = 500
LEASE_MS = 30_000
SHUTDOWN_MS = 10_000


async def probe_sink(lane: Lane) -> None:
    """Reach the sink before there is a message to send, which also lets it create its topic.

    Until the sink has answered the probe or a message, messages are sent to it one by one.
    """
    lane.breaker.half_open()
    name, sink = lane.route.name, lane.sink
    try:
        await sink.check()
    except PenstockError as exc:
        log.warning("route %s: %s; messages go to it one by one until it answers", name, exc)
    except Exception:
        log.exception("route %s: sink %s could not be checked", name, sink.name)
    else:
        lane.sink_answered()


class Worker:
    """Releases messages of the routes it is given until it is stopped."""

    def __init__(
        self,
        store: Store,
        routes: Mapping[str, tuple[Route, Sink]],
        observer: Observer,
        *,
        batch_size: int = BATCH_SIZE,
        lease: int = LEASE_MS,
        poll: int = POLL_MS,
        gather: int = 0,
        shutdown: int = SHUTDOWN_MS,
        chance: random.Random | None = None,
        policies: Policies | None = None,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        leave_calls: bool = False,
        erase: Erase | None = None,
        dead_retention: int | None = None,
        planter: Planter | None = None,
    ) -> None:
        """`leave_calls`: at the end of a shutdown, calls that cannot be interrupted are left as
        they are, because the process ends too; else run() waits for them."""
        chance = given_or_fresh(chance)
        held = InFlight(in_flight_bytes)
        contact = Contact(store.messages, lease)
        self._clock = store.clock
        self._shutdown = shutdown
        self._leave_calls = leave_calls
        self._policies = policies
        self._settler = Settler(store, observer, contact, policies)
        self._lane = partial(
            Lane,
            store=store,
            settler=self._settler,
            observer=observer,
            contact=contact,
            chance=chance,
            batch_size=batch_size,
            lease=lease,
            poll=poll,
            gather=gather,
            policies=policies,
            held=held,
        )
        self.lanes = Lanes(
            {name: self._lane(route, sink) for name, (route, sink) in routes.items()}
        )
        self._claiming: list[asyncio.Task[None]] = []
        self._group: asyncio.TaskGroup | None = None
        """While it runs."""
        self._recover = Recover(
            store.messages, observer, contact, self._held, lease=lease, extended=self._extended
        )
        self._forget = Forget(store.messages, observer, erase=erase, dead_retention=dead_retention)
        self._planter = planter
        self._stop = Alarm(store.clock)
        store.messages.listen(self.lanes.wake)

    async def run(self) -> None:
        """Run until stop() or cancellation; return when nothing is in flight any more."""
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(self._recover.run()),
                group.create_task(self._forget.run()),
                *(group.create_task(probe_sink(lane)) for lane in self.lanes.values()),
            ]
            if self._policies is not None:
                helpers.append(group.create_task(self._policies.run()))
            planting = None if self._planter is None else group.create_task(self._planter.run())
            self._claiming = [group.create_task(lane.run()) for lane in self.lanes.values()]
            self._group = group
            try:
                await self._stop.wait()
            finally:
                self._group = None
                if planting is not None:  # what comes due from now on is for those that go on
                    planting.cancel()
                for lane in self.lanes.values():
                    lane.stop()
                await asyncio.shield(self._finish(self._claiming))
                for task in helpers:
                    task.cancel()

    def add(self, route: Route, sink: Sink) -> None:
        """Serve one more route, from now on or from the beginning of run(); the caller closes
        the sink."""
        if route.name in self.lanes:
            raise ConfigError(f"routes.{route.name}: there is such a route already")
        lane = self.lanes[route.name] = self._lane(route, sink)
        if self._group is not None:
            self._claiming.append(self._group.create_task(lane.run()))

    def stop(self) -> None:
        """Claim no more, finish or give back messages in flight, then let run() return."""
        self._stop.ring()

    async def _finish(self, claiming: list[asyncio.Task[None]]) -> None:
        deadline = self._clock.now() + self._shutdown
        await asyncio.gather(*claiming, return_exceptions=True)
        leave = self._leave_calls
        await asyncio.gather(*(lane.finish(deadline, leave=leave) for lane in self.lanes.values()))
        await self._settler.drain(deadline)
        if self.calls_left:
            await self._recover.extend()

    @property
    def calls_left(self) -> bool:
        """True if calls go on that could not be interrupted; only after run() has returned."""
        return any(lane.is_sending for lane in self.lanes.values())

    @property
    def planting_lag(self) -> int:
        """Milliseconds that the oldest rule had waited for its planter when it last looked."""
        return 0 if self._planter is None else self._planter.lag

    def _held(self) -> list[int]:
        return [token for lane in self.lanes.values() for token in lane.leases.tokens]

    def _extended(self, tokens: Sequence[int], now: int, until: int) -> None:
        for lane in self.lanes.values():
            lane.leases.extended(tokens, now, until)
