"""The store port's methods, each a step of its own file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from penstock.model.errors import PenstockError
from penstock.model.fleet import Heartbeat
from penstock.model.forecast import Forecast
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE, in_calls
from penstock.model.state import State
from penstock.ports.policies import PolicyStore
from penstock.ports.rooms import OpenRooms
from penstock.ports.store import Store, WakeListener
from penstock.redis_kit.connect import Server
from penstock.redis_kit.heartbeats import Heartbeats
from penstock.redis_kit.runner import Runner
from penstock.stores.dynamodb import amend, figures, forecast, lookup, put, search
from penstock.stores.dynamodb.address import Address
from penstock.stores.dynamodb.clock import NearClock
from penstock.stores.dynamodb.gateway import PUT, Gateway, line
from penstock.stores.dynamodb.hydrate import Hydrator
from penstock.stores.dynamodb.items import MAX_CONTENT
from penstock.stores.dynamodb.lease import Leases
from penstock.stores.dynamodb.policies import TieredPolicies
from penstock.stores.dynamodb.recurring import DynamoRecurring
from penstock.stores.dynamodb.schema import SCHEMA_VERSION, state_of
from penstock.stores.dynamodb.session import Session, log
from penstock.stores.dynamodb.settle import Settling
from penstock.stores.dynamodb.turns import KeyedLeases, keep_turns
from penstock.stores.redis.messages.line import UNBOUNDED
from penstock.stores.redis.policies.store import RedisPolicies
from penstock.stores.redis.rooms import Serving, open_rooms
from penstock.time.clock import Clock

MAX_PUT = 2_000
"""Most messages of one put call; longer batches are split, each part safe to repeat."""


class TieredStore:
    """Messages in DynamoDB, the near future's ids in Redis. Created by `open_store`."""

    def __init__(
        self, address: Address, gateway: Gateway, server: Server, session: Session, clock: Clock
    ) -> None:
        self._address = address
        self._gateway = gateway
        self._server = server
        self._session = session
        self._clock = clock
        self._settling = Settling(session)
        self._leases = Leases(session, self._settling, self._refill)
        self._recurring = DynamoRecurring(
            session.table,
            session.shape.shards,
            session.near,
            session.near.agenda("rules"),
            clock,
        )
        session.wakeups.add(self._recurring.heard)
        self._routes = lookup.Routes(session)
        self.policies: PolicyStore = TieredPolicies(
            session.table,
            session.near,
            session.shape.shards,
            lambda: RedisPolicies(Runner(server, address.redis.name), address.redis.prefix),
        )
        self._heartbeats = Heartbeats(
            Runner(server, address.redis.name), f"{address.redis.prefix}:near"
        )
        self._hydrator = Hydrator(session, self._reopen)
        self._keyed = KeyedLeases(session, self._leases, self._hydrator.fill)
        self._hydrating: asyncio.Task[None] | None = None
        self._tasks = [asyncio.create_task(session.wakeups.listen(), name="penstock-near-wakeups")]
        if isinstance(clock, NearClock):
            self._tasks.append(asyncio.create_task(clock.keep(), name="penstock-near-clock"))

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
            recurring=self._recurring,
            fleet=self,
            forecasting=self,
            keyed=self,
            turns=self,
            admitting=self,
            max_message=MAX_CONTENT,  # larger ones do not fit into an item
            figures_serve=self._address.figures,
            health_name="redis",
        )

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        return await self._put(messages, now, admit=True)

    async def put_unadmitted(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        """Put without Redis: `admit`, or else the sweep, adds the ids."""
        return await self._put(messages, now, admit=False)

    async def _put(self, messages: Sequence[NewMessage], now: int, *, admit: bool) -> list[Receipt]:
        await self._routes.note(frozenset(message.route for message in messages))
        receipts: list[Receipt] = []
        for first in range(0, len(messages), MAX_PUT):
            for part in in_calls(messages[first : first + MAX_PUT]):
                with line(PUT):
                    receipts += await put.put(self._session, part, now, admit=admit)
        return receipts

    async def admit(self, ids: Iterable[str], now: int) -> int:
        """Add these to Redis if they wait and are near; the answer counts the waiting.

        Repeatable.
        """
        found = await self._session.look(ids)
        waiting = [
            loaded.message for loaded in found.values() if loaded.message.state is State.SCHEDULED
        ]
        await self._session.bring(waiting, now)
        return len(waiting)

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        self._hydrate()
        with line("claim"):
            if route in self._session.keyed:
                return await self._keyed.claim(route, limit, lease, now, UNBOUNDED, max_bytes)
            return await self._leases.claim(route, limit, lease, now, max_bytes)

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        self._hydrate()
        await self.keep_turns([route])
        with line("claim"):
            return await self._keyed.claim(route, limit, lease, now, per_key, max_bytes)

    async def keep_turns(self, routes: Iterable[str]) -> None:
        await keep_turns(self._session, routes)

    def _hydrate(self) -> None:
        if self._hydrating is None:
            # Only releasing needs the near future; commands that read do not.
            self._hydrating = asyncio.create_task(self._hydrator.run(), name="penstock-hydrator")

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        with line("settle"):
            return await self._settling.settle(settlements, now) if settlements else []

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        if tokens:
            await self._leases.extend(tokens, until)
            await self._keyed.extend(tokens, until)

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        with line("reap"):
            return await self._leases.reap(now, limit)

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        return await amend.amend(self._session, amendments, now)

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        return await lookup.erasures(self._session, add, remove)

    async def find(self, ids: Sequence[str]) -> list[Message | None]:
        return await lookup.find(self._session, ids)

    async def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        return await lookup.get(self._session, message_id)

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        return await search.search(self._session, where, after, limit)

    async def purge(self, now: int, limit: int) -> int:
        return await lookup.purge(self._session, now, limit)

    async def figures(self, now: int) -> StoreFigures:
        return await figures.figures(self._session, now, self._address.figures)

    async def forecast(self, now: int) -> Forecast:
        return await forecast.forecast(self._session, now, self._address.figures)

    async def beat(self, heartbeat: Heartbeat) -> None:
        await self._heartbeats.put(heartbeat)

    async def heartbeats(self) -> list[Heartbeat]:
        """Empty while Redis is unavailable: figures then cover fewer processes."""
        try:
            return await self._heartbeats.all()
        except PenstockError as exc:
            log.debug("heartbeats of other processes could not be read, figures lack them: %s", exc)
            return []

    async def forget_heartbeats(self, before: int) -> None:
        await self._heartbeats.forget(before)

    async def pause(self, route: str, paused: bool) -> None:
        await lookup.pause(self._session, route, paused)

    async def paused(self) -> frozenset[str]:
        return await lookup.paused_routes(self._session)

    def listen(self, listener: WakeListener) -> None:
        self._session.wakeups.add(listener)

    async def open_rooms(
        self, capacity: int, consumer: str, *, serves_all: bool = False, signs: str = ""
    ) -> OpenRooms:
        """Waiting rooms in Redis, as on the Redis store: they concern the present only."""
        serving = Serving(consumer, serves_all=serves_all, signs=signs)
        return await open_rooms(
            self._server, self.name, self._clock, capacity, serving, self._address.redis.prefix
        )

    async def check(self) -> dict[str, str]:
        """Facts for health. Without Redis messages are still accepted: a fact, not a failure."""
        state = await state_of(self._gateway, self._address.table)
        shown = {
            "store": self.name,
            "table": f"{self._address.table} {state or 'is missing'}",
            "schema_version": str(SCHEMA_VERSION),
            "durability": "DynamoDB has every message; Redis only ids",
            "shards": str(self._session.shape.shards),
            "writes": "25 a call" if self._session.table.partiql else "one by one",
        }
        try:
            await self._session.near.noted("figures")
            shown["redis"] = f"{self._address.redis.name} answers"
        except PenstockError as exc:
            shown["redis"] = f"away, nothing is released: {exc.message}"
        return shown

    async def close(self) -> None:
        """Closing twice is harmless."""
        self._recurring.close()
        hydrating = self._hydrating
        for task in self._tasks if hydrating is None else [*self._tasks, hydrating]:
            while not task.done():
                task.cancel()  # repeatedly: a connection that is being opened may swallow one
                await asyncio.wait([task], timeout=0.05)
        if hydrating is not None:
            self._hydrating = None
            try:
                await self._hydrator.stop()
            except PenstockError as exc:
                log.debug(
                    "this process could not be noted as ended, its heartbeat expires instead: %s",
                    exc,
                )
        await self._server.close()
        await self._gateway.close()

    async def _reopen(self) -> None:
        await lookup.copy_paused(self._session, use=True)

    async def _refill(self) -> None:
        """After Redis lost its data: copy the paused routes, and restore the near future."""
        await self._reopen()
        self._hydrator.hurry()
