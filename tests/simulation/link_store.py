"""The ports of messages and policies, each call by way of a Line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.model.decision import Conclusion, CounterFigure, Decision, PaceAllowance, Subject
from penstock.model.errors import PartlyUnavailable, StoreUnavailable
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.ports.policies import PolicyStore
from penstock.ports.store import WakeListener
from penstock.time.clock import Clock
from tests.simulation.link import Backend, Line


def _nothing(_: object) -> None:
    """A read is not told to anybody."""


class LinkedStore:
    """A MessageStore over the network."""

    def __init__(self, line: Line, backend: Backend) -> None:
        self._line = line
        self._to = backend
        self._ledger = line.books.ledger
        self.listeners: list[WakeListener] = []
        self.policies = LinkedPolicies(line, backend.policies)

    @property
    def name(self) -> str:
        return self._to.name

    @property
    def clock(self) -> Clock:
        return self._line.clock

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        line, ledger = self._line, self._ledger
        refuses = line.books.refuses
        if refuses and any(message.id.startswith(refuses) for message in messages):
            await asyncio.sleep(0)
            raise ValueError("simulated: one of these cannot be stored")
        return await line.call(
            lambda: self._to.put(messages, now),
            lambda got: ledger.put(line.who, messages, now, got),
        )

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        line, ledger = self._line.of(f"route {route}"), self._ledger
        return await line.call(
            lambda: self._to.claim(route, limit, lease, now, max_bytes),
            lambda got: ledger.claim(
                line.who, route, limit, lease, line.reached(now), got, None, max_bytes
            ),
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
        line, ledger = self._line.of(f"route {route}"), self._ledger
        return await line.call(
            lambda: self._to.claim_keyed(route, limit, lease, now, per_key, max_bytes),
            lambda got: ledger.claim(
                line.who, route, limit, lease, line.reached(now), got, per_key, max_bytes
            ),
        )

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        away = self._line.books.away
        here = {
            place: one
            for place, one in enumerate(settlements)
            if f"route {one.message.route}" != away
        }
        if not here:
            raise StoreUnavailable(f"simulated: {away} away")
        answers = dict(zip(here, await self._settle(list(here.values()), now), strict=True))
        if len(here) < len(settlements):
            raise PartlyUnavailable(f"simulated: {away} away", answers)
        return [answers[place] for place in range(len(settlements))]

    async def _settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        line, ledger = self._line, self._ledger
        return await line.call(
            lambda: self._to.settle(settlements, now),
            lambda got: ledger.settle(line.who, settlements, now, got),
        )

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        line, ledger = self._line, self._ledger
        own = line.clock.now()
        until += line.now(own) - own
        await line.call(
            lambda: self._to.extend(tokens, until),
            lambda _: ledger.extend(line.who, tokens, until),
        )

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        line, ledger = self._line, self._ledger
        return await line.call(
            lambda: self._to.reap(now, limit),
            lambda got: ledger.reap(line.who, line.reached(now), limit, got),
        )

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        line, ledger = self._line, self._ledger
        return await line.call(
            lambda: self._to.amend(amendments, now),
            lambda got: ledger.amend(line.who, amendments, now, got),
        )

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        raise AssertionError(f"nobody asks for an erasure here: {add} {remove}")

    async def find(self, ids: Sequence[str]) -> list[Message | None]:
        return await self._line.call(lambda: self._to.find(ids), _nothing)

    async def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        return await self._line.call(lambda: self._to.get(message_id), _nothing)

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        return await self._line.call(
            lambda: self._to.search(where, after, limit),
            lambda got: self._ledger.search(where, after, limit, got),
        )

    async def purge(self, now: int, limit: int) -> int:
        return await self._line.call(
            lambda: self._to.purge(now, limit),
            lambda got: self._ledger.purge(self._line.reached(now), limit, got),
        )

    async def figures(self, now: int) -> StoreFigures:
        return await self._line.call(lambda: self._to.figures(now), _nothing)

    async def pause(self, route: str, paused: bool) -> None:
        line, ledger = self._line, self._ledger
        await line.call(
            lambda: self._to.pause(route, paused), lambda _: ledger.pause(line.who, route, paused)
        )

    async def paused(self) -> frozenset[str]:
        return await self._line.call(self._to.paused, _nothing)

    def listen(self, listener: WakeListener) -> None:
        self.listeners.append(listener)

    async def check(self) -> dict[str, str]:
        return await self._line.call(self._to.check, _nothing)

    async def close(self) -> None:
        """The server closes its end."""


class LinkedPolicies:
    """A PolicyStore over the network."""

    def __init__(self, line: Line, backend: PolicyStore) -> None:
        self._line = line.of("policies")
        self._to = backend
        self._rulings = line.books.rulings

    def use_zone(self, zone: str) -> None:
        self._to.use_zone(zone)

    async def book(self) -> RuleBook:
        book = await self._line.call(self._to.book, _nothing)
        self._rulings.knows(self._line.who, bool(book))
        return book

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        return await self._line.call(
            lambda: self._to.put_policy(policy_id, policy),
            lambda _: self._rulings.put_policy(self._line.who, policy_id, policy),
        )

    async def drop_policy(self, policy_id: str) -> bool:
        return await self._line.call(
            lambda: self._to.drop_policy(policy_id),
            lambda got: self._rulings.drop_policy(self._line.who, policy_id, got),
        )

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        return await self._line.call(
            lambda: self._to.put_suppression(list_id, suppression),
            lambda _: self._rulings.put_suppression(self._line.who, list_id, suppression),
        )

    async def drop_suppression(self, list_id: str) -> bool:
        return await self._line.call(
            lambda: self._to.drop_suppression(list_id),
            lambda got: self._rulings.drop_suppression(self._line.who, list_id, got),
        )

    async def suppression(self, list_id: str) -> Suppression | None:
        return await self._line.call(lambda: self._to.suppression(list_id), _nothing)

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        raise AssertionError(f"lists are put whole here: {list_id} {add} {remove}")

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.decide(subjects, now, hold),
            lambda got: self._rulings.decide(self._line.who, subjects, now, hold, got),
        )

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        now = self._line.now(now)
        await self._line.call(
            lambda: self._to.conclude(conclusions, now),
            lambda _: self._rulings.conclude(self._line.who, conclusions, now),
        )

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        return await self._line.call(lambda: self._to.explain(subjects, now), _nothing)

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        return await self._line.call(lambda: self._to.counters(key, now), _nothing)

    async def forget(self, key: str, now: int) -> int:
        raise AssertionError(f"nobody asks for an erasure here: {key} at {now}")

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.allowance(route, now),
            lambda got: self._rulings.allowance(route, now, got),
        )
