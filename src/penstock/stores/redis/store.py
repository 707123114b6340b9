"""The store as the flow sees it: the port's methods, each a step of its own file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from penstock.model.decision import Conclusion, End, Subject
from penstock.model.fleet import Heartbeat
from penstock.model.forecast import Forecast
from penstock.model.message import Event, Message
from penstock.model.outcome import Claim, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.ports.rooms import OpenRooms
from penstock.ports.store import Store, WakeListener
from penstock.redis_kit import health
from penstock.redis_kit.address import Address
from penstock.redis_kit.connect import Server
from penstock.redis_kit.heartbeats import Heartbeats
from penstock.redis_kit.wake import news_of
from penstock.stores.redis.messages import amend, lookup, put
from penstock.stores.redis.messages.settle import Settling
from penstock.stores.redis.messages.turns import KeyedLeases
from penstock.stores.redis.policies.store import RedisPolicies
from penstock.stores.redis.recurring.store import RedisRecurring
from penstock.stores.redis.rooms import Serving, open_rooms
from penstock.stores.redis.search import figures as overview
from penstock.stores.redis.search import search
from penstock.stores.redis.search.figures import forecast
from penstock.stores.redis.search.key_index import KeyIndex
from penstock.stores.redis.session import Session
from penstock.time.clock import Clock
from penstock.time.server_clock import ServerClock

DELIVERED = State.DELIVERED


class RedisStore:
    """Messages in Redis or Redis Cluster. Made by `open_store`."""

    def __init__(
        self,
        address: Address,
        server: Server,
        session: Session,
        clock: Clock,
        index: KeyIndex | None = None,
    ) -> None:
        self._address = address
        self._server = server
        self._session = session
        self._clock = clock
        self._leases = KeyedLeases(session, cluster=server.cluster)
        self.put = partial(put.put, session)
        self.claim = self._leases.claim
        self._settling = Settling(session)
        self.settle = self._settling.settle
        self.reap = self._leases.reap
        self.amend = partial(amend.amend, session)
        self._heartbeats = Heartbeats(session.runner, address.prefix)
        self.policies = RedisPolicies(session.runner, address.prefix)
        self.recurring = RedisRecurring(session.runner, address.prefix, session.wakeups)
        self._tasks = [asyncio.create_task(session.wakeups.listen(), name="penstock-redis-wakeups")]
        if isinstance(clock, ServerClock):
            self._tasks.append(asyncio.create_task(clock.keep(), name="penstock-redis-clock"))
        if index is not None:
            self._tasks.append(asyncio.create_task(index.keep(), name="penstock-redis-index"))

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def clock(self) -> Clock:
        return self._clock

    def as_store(self) -> Store:
        """The parts of this store."""
        return Store(
            messages=self,
            policies=self.policies,
            rooms=self,
            recurring=self.recurring,
            fleet=self,
            forecasting=self,
            keyed=self,
            turns=self,
            counted=None if self._server.cluster else self,
            entries=self,
            announces=self._session.wakeups.subscribed.is_set,
            health_name="redis",
        )

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        return await self._leases.claim(route, limit, lease, now, max_bytes, per_key)

    async def settle_counted(
        self, settlements: Sequence[Settlement], sent: Sequence[Subject], now: int
    ) -> list[State | None]:
        """Count and settle in one call when all are delivered; a call that raises may have counted,
        and a second count of the same messages changes nothing.
        """
        if self._settling.is_answered and all(one.state is DELIVERED for one in settlements):
            run = partial(self.policies.count_then, sent, now)
            return await self._settling.settle(settlements, now, run)
        await self.policies.conclude([Conclusion(one, End.COMMIT) for one in sent], now)
        return await self.settle(settlements, now)

    async def keep_turns(self, routes: Iterable[str]) -> None:
        await self._session.layout.keep_turns(routes)

    def is_at(self, place: tuple[str, int, int]) -> bool:
        """True if that stream is in this very server; never in a cluster, where slots differ."""
        address = self._address
        return not self._server.cluster and (*address.hosts[:1], address.db) == (
            place[:2],
            place[2],
        )

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        if tokens:
            await self._leases.extend(tokens, until, self._clock.now())

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        return await lookup.erasures(self._session.runner, self._address.prefix, add, remove)

    async def find(self, ids: Sequence[str]) -> list[Message | None]:
        return await lookup.find(self._session, ids)

    async def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        return await lookup.get(self._session, message_id)

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        if after is None:  # another process may have grown the layout, and lists must be complete
            await self._session.layout.refresh()
        return await search.search(self._session, where, after, limit)

    async def purge(self, now: int, limit: int) -> int:
        return await lookup.purge(self._session, now, limit)

    async def figures(self, now: int) -> StoreFigures:
        return await overview.figures(self._session, now)

    async def forecast(self, now: int) -> Forecast:
        return await forecast(self._session, now)

    async def beat(self, heartbeat: Heartbeat) -> None:
        await self._heartbeats.put(heartbeat)

    async def heartbeats(self) -> list[Heartbeat]:
        return await self._heartbeats.all()

    async def forget_heartbeats(self, before: int) -> None:
        await self._heartbeats.forget(before)

    async def pause(self, route: str, paused: bool) -> None:
        await self._session.layout.pause(route, paused)
        if not paused:
            now = self._clock.now()
            channel = self._session.wakeups.channel
            await self._session.runner.call("PUBLISH", channel, news_of(route, now))
            self._session.wakeups.tell(route, now)

    async def paused(self) -> frozenset[str]:
        return await self._session.layout.paused()

    def listen(self, listener: WakeListener) -> None:
        self._session.wakeups.add(listener)

    async def open_rooms(
        self, capacity: int, consumer: str, *, serves_all: bool = False, signs: str = ""
    ) -> OpenRooms:
        """Waiting rooms on the same connections; with the usual prefix in the Dispatcher's keys."""
        serving = Serving(consumer, serves_all=serves_all, signs=signs)
        return await open_rooms(
            self._server, self.name, self._clock, capacity, serving, self._address.prefix
        )

    async def check(self) -> dict[str, str]:
        layout = self._session.layout
        await layout.refresh()
        return {
            "store": self.name,
            "partitions": str(layout.total),
            "generation": str(layout.generation),
            **await health.nodes(self._session.runner),
        }

    async def close(self) -> None:
        """Closing twice is harmless."""
        for task in self._tasks:
            while not task.done():
                task.cancel()  # again and again: a connection being made may swallow one
                await asyncio.wait([task], timeout=0.05)
        await self._server.close()
