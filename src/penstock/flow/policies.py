"""POLICIES: the rules that decisions apply, changed at run time and known to every process."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from penstock.flow import several
from penstock.flow.conclude import counted_as
from penstock.limits.waiters import Waiters
from penstock.model.decision import Conclusion, CounterFigure, Decision, PaceAllowance, Question
from penstock.model.errors import StoreUnavailable, UnknownThing
from penstock.model.message import Message
from penstock.model.policy import (
    Cap,
    Pace,
    Policy,
    RuleBook,
    Suppression,
    check_policy,
    check_policy_id,
    check_suppression,
)
from penstock.ports.policies import PolicyStore
from penstock.time.clock import Clock

log = logging.getLogger("penstock.policies")

REFRESH_MS = 1_000
"""How soon the first policy, put by another process, is noticed.

Later policies bind at once: while there are any, every decision reads them in its transaction.
"""
CACHE_IF_ABOVE = 8
"""Cache an allowance that is at least so many times the request …"""
CACHED_MS = 50
"""… for so long, less what was claimed since. If other processes use all of it up in that time,
deciding still sends no more than the pace allows, and defers the rest.
"""


class _CachedAllowance:
    """The allowance of a route's paces when they were last read."""

    def __init__(self, number: int, at: int) -> None:
        self.number = number
        self.at = at

    def take(self, wanted: int, now: int) -> bool:
        """Take so many of the cached allowance; False if it is too old or too small by now."""
        self.number -= wanted
        return self.number >= (CACHE_IF_ABOVE - 1) * wanted and 0 <= now - self.at < CACHED_MS


class Policies:
    """This process's view of the rules, and the one way to change them.

    While there are no rules, deciding costs nothing: the store is not called.
    """

    def __init__(self, store: PolicyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.book = RuleBook()
        self.known = False
        """True once the rules have been read."""
        self.active = False
        """True if there are policies or suppressions to decide by."""
        self._paced = False
        self._waiters = Waiters()
        self._cached: dict[str, _CachedAllowance] = {}
        """Route → an allowance far above this process's requests."""

    async def refresh(self) -> RuleBook:
        self.book = await self._store.book()
        self.known = True
        self.active = bool(self.book)
        self._paced = any(isinstance(policy, Pace) for policy in self.book.policies.values())
        self._cached.clear()
        return self.book

    async def run(self) -> None:
        """Read the rules regularly to notice changes by other processes."""
        while True:
            try:
                await self.refresh()
            except StoreUnavailable as exc:
                log.warning("store away, policies are read when it answers: %s", exc)
            await self._clock.sleep_until(self._clock.now() + REFRESH_MS)

    # --- the rules

    async def put(self, policies: Mapping[str, Policy]) -> None:
        """Check every policy, then store them all; they bind every decision from now on."""
        for policy_id, policy in policies.items():
            check_policy(policy)
            check_policy_id(policy_id)
        for policy_id, policy in policies.items():
            await self._store.put_policy(policy_id, policy)
        if policies:
            await self.refresh()

    async def begin(
        self, policies: Mapping[str, Policy], suppressions: Mapping[str, Suppression]
    ) -> None:
        """Store the policies and suppressions of the settings at start. Keys are only added to an
        existing list.
        """
        await self.put(policies)
        for list_id, suppression in suppressions.items():
            there = (await self.refresh()).suppressions.get(list_id)
            if there == msgspec.structs.replace(suppression, keys=()):
                await self.suppress(list_id, add=suppression.keys)
            else:
                kept = () if there is None else (await self.suppression(list_id)).keys
                keys = tuple(dict.fromkeys((*kept, *suppression.keys)))
                await self.put_suppression(list_id, msgspec.structs.replace(suppression, keys=keys))

    async def get(self, policy_id: str) -> Policy:
        policy = (await self.refresh()).policies.get(policy_id)
        if policy is None:
            raise UnknownThing(f"no policy named {policy_id[:100]!r}")
        return policy

    async def drop(self, policy_id: str) -> None:
        if not await self._store.drop_policy(policy_id):
            raise UnknownThing(f"no policy named {policy_id[:100]!r}")
        await self.refresh()

    async def put_suppression(self, list_id: str, suppression: Suppression) -> None:
        check_policy_id(list_id)
        await self._store.put_suppression(list_id, check_suppression(suppression))
        await self.refresh()

    async def suppression(self, list_id: str) -> Suppression:
        found = await self._store.suppression(list_id)
        if found is None:
            raise UnknownThing(f"no suppression list named {list_id[:100]!r}")
        return found

    async def drop_suppression(self, list_id: str) -> None:
        if not await self._store.drop_suppression(list_id):
            raise UnknownThing(f"no suppression list named {list_id[:100]!r}")
        await self.refresh()

    async def suppress(
        self, list_id: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> None:
        """Add and remove single keys of a list."""
        check_suppression(Suppression(keys=tuple(add)))
        if not await self._store.suppress(list_id, add, remove):
            raise UnknownThing(f"no suppression list named {list_id[:100]!r}")

    # --- decisions

    async def explain(self, questions: Sequence[Question]) -> list[Decision]:
        """Explain what would happen to each message now, on its own. Writes nothing."""
        return await several.explain(self._store, questions, self._clock.now())

    async def counters(self, key: str) -> list[CounterFigure]:
        return await self._store.counters(key, self._clock.now())

    async def forget(self, key: str) -> int:
        """Drop the counters of a key; how many there were. It stays on suppression lists."""
        return await self._store.forget(key, self._clock.now())

    async def decide(self, messages: Sequence[Message], now: int, hold: int) -> list[Decision]:
        if any(m.labels is not None and m.labels.keys for m in messages):
            return await several.decide(self._store, messages, now, hold)
        subjects = [m if not m.attempt_floor else counted_as(m) for m in messages]
        return await self._store.decide(subjects, now, hold)

    def place_in_line(self, message: Message, decision: Decision) -> Decision:
        """Give a message that a cap defers a slot of its own; other decisions stay unchanged."""
        if decision.until is None or decision.reason is None:
            return decision
        policy_id = decision.reason.policy
        cap = self.book.policies.get(policy_id)
        if not isinstance(cap, Cap):
            return decision
        now = self._clock.now()
        subject = (
            message if decision.key is None else msgspec.structs.replace(message, key=decision.key)
        )
        until = self._waiters.place(policy_id, cap, subject, decision.until, now)
        return (
            decision if until == decision.until else msgspec.structs.replace(decision, until=until)
        )

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        if conclusions:
            await self._store.conclude(conclusions, now)

    async def allowance(self, route: str, wanted: int, now: int) -> PaceAllowance:
        """Number of `wanted` messages that the paces of the whole route allow to claim now."""
        if not self._paced:
            return PaceAllowance(wanted)
        cached = self._cached.get(route)
        if cached is not None and cached.take(wanted, now):
            return PaceAllowance(wanted)
        allowance = await self._store.allowance(route, now)
        if allowance is None:
            return PaceAllowance(wanted)
        self._cached.pop(route, None)
        if allowance.number >= CACHE_IF_ABOVE * wanted:
            self._cached[route] = _CachedAllowance(allowance.number - wanted, now)
        return PaceAllowance(min(allowance.number, wanted), allowance.again_at)
