"""The store of policies as the flow sees it, on Redis and Redis Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache, partial
from typing import TypeVar

import msgspec

from penstock.limits.books import Books
from penstock.limits.bulk import room_on
from penstock.limits.counter import Counter, kept_until, reserved_until
from penstock.limits.figures import figures
from penstock.limits.pace import PaceState
from penstock.limits.rules import Rules
from penstock.model.decision import Conclusion, CounterFigure, Decision, End, PaceAllowance, Subject
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.model.zone import DEFAULT_ZONE
from penstock.redis_kit.connect import Reply
from penstock.redis_kit.runner import Group, Runner, Step
from penstock.redis_kit.scripts import Chain, Script
from penstock.stores.redis.policies.book import Book
from penstock.stores.redis.policies.compiled import CompiledPlan, PlanCompiler
from penstock.stores.redis.policies.decide import (
    COMMIT,
    KEEP,
    RELEASE,
    DecisionBatch,
    Kind,
    PolicyRequest,
    PolicyScripts,
    StaleRules,
    current,
)

_ACCOUNT = Script("stores/redis/policies/account.lua")

S = TypeVar("S")
T = TypeVar("T")

MAX_BATCH = 2_000
"""Messages of one call; longer batches go in several."""
ROUNDS = 20
"""Times that one batch starts again because the rules have changed."""

_chain = cache(Chain)

_pace = msgspec.msgpack.Decoder(PaceState)
_ENDS = {End.COMMIT: COMMIT, End.RELEASE: RELEASE, End.KEEP: KEEP}


class RedisPolicies:
    """Policies, suppressions and counters, shared by every process on the same servers."""

    def __init__(self, runner: Runner, prefix: str) -> None:
        self._runner = runner
        self._prefix = prefix
        self._book = Book(runner, prefix, DEFAULT_ZONE)

    def use_zone(self, zone: str) -> None:
        self._book = Book(self._runner, self._prefix, zone)

    async def book(self) -> RuleBook:
        return (await self._book.read()).book

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        return await self._book.put_policy(policy_id, policy)

    async def drop_policy(self, policy_id: str) -> bool:
        return await self._book.drop_policy(policy_id)

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        return await self._book.put_suppression(list_id, suppression)

    async def drop_suppression(self, list_id: str) -> bool:
        return await self._book.drop_suppression(list_id)

    async def suppression(self, list_id: str) -> Suppression | None:
        return await self._book.suppression(list_id)

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        return await self._book.suppress(list_id, add, remove)

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        decisions: list[Decision] = []
        for some in _parts(subjects):
            work = partial(_decide, some, now)
            decisions += await self._by_current_rules(work, now, reserved_until(now + hold))
        return decisions

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        for some in _parts(conclusions):
            latest = max(one.until for one in some)
            await self._by_current_rules(partial(_conclude, some, now), now, max(now, latest))

    async def count_then(
        self, sent: Sequence[Subject], now: int, step: Step
    ) -> Sequence[Reply | PenstockError]:
        """Count the sent subjects, then run a step; return its answers, or the error of each.

        In one call, or in two where that would be too long. Counting again changes nothing.
        """
        try:
            if len(sent) <= MAX_BATCH:
                work = partial(_count_then, self._runner, sent, step, now)
                replies = await self._by_current_rules(work, now, now)
                if replies is not None:
                    return replies
            await self.conclude([Conclusion(one, End.COMMIT) for one in sent], now)
        except PenstockError as exc:
            return [exc] * len(step.groups)
        return await self._runner.try_run(*step)

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        decisions: list[Decision] = []
        for some in _parts(subjects):
            decisions += await self._by_current_rules(partial(_explain, some, now), now, now)
        return decisions

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        rules = await self._book.read()
        return figures(rules, await self._account(key, now), key, now)

    async def forget(self, key: str, now: int) -> int:
        counters = len(await self._account(key, now))
        packed = key.encode()
        shard = (await self._book.keys()).shard_of(packed)
        await self._runner.call("HDEL", shard.accounts, packed, partition=shard.number)
        return counters

    async def _account(self, key: str, now: int) -> dict[str, Counter]:
        """The counters of this key."""
        packed = key.encode()
        shard = (await self._book.keys()).shard_of(packed)
        group = Group(shard.number, (shard.accounts,))
        reply = await self._runner.single(_ACCOUNT, group, [now, packed], writes=False)
        return {
            reply[i].decode(): Counter(
                times=reply[i + 1],
                counts=reply[i + 2],
                held={str(number): now + 1 for number in range(reply[i + 3])},
                last=reply[i + 4],
            )
            for i in range(0, len(reply), 5)
        }

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        """The allowance of the paces of the whole route now, by the rules last read."""
        rules = self._book.rules
        names = [pace.state for pace in rules.whole_paces(route)]
        if not names:
            return None
        shared = (await self._book.keys()).shared
        states = await self._runner.call("HMGET", shared.paces, *names, partition=shared.number)
        books = Books()
        books.paces = {
            name: _pace.decode(state)
            for name, state in zip(names, states, strict=True)
            if state is not None
        }
        return room_on(rules, route, now, books)

    async def _by_current_rules(
        self, work: Callable[[PolicyScripts, Rules], Awaitable[T]], now: int, hold_until: int
    ) -> T:
        """Run `work`, and again by newer rules while there are: every call may be repeated."""
        keys = await self._book.keys()
        rules = self._book.rules if self._book.rules.version else await self._book.read()
        for _ in range(ROUNDS):
            try:
                scripts = PolicyScripts(self._runner, keys, rules, now, hold_until)
                return await work(scripts, rules)
            except StaleRules as stale:
                rules = await self._book.catch_up(stale.version)
        raise StoreUnavailable(
            f"rules changed {ROUNDS} times during this call; retry", retry_after=1.0
        )


def _parts(items: Sequence[S]) -> Iterator[Sequence[S]]:
    for first in range(0, len(items), MAX_BATCH):
        yield items[first : first + MAX_BATCH]


async def _decide(
    subjects: Sequence[Subject], now: int, scripts: PolicyScripts, rules: Rules
) -> list[Decision]:
    return await DecisionBatch(scripts, rules, subjects, now).decide()


async def _explain(
    subjects: Sequence[Subject], now: int, scripts: PolicyScripts, rules: Rules
) -> list[Decision]:
    return await DecisionBatch(scripts, rules, subjects, now).explain()


async def _count_then(
    runner: Runner,
    sent: Sequence[Subject],
    step: Step,
    now: int,
    scripts: PolicyScripts,
    rules: Rules,
) -> list[Reply] | None:
    """Count and run the step in one call; None: it does not fit, and nothing was done."""
    request = PolicyRequest(sent, PlanCompiler(rules, now).each(sent), (COMMIT, 0, 0))
    plans = request.plans.values()
    steps = []
    if keyed := {id(one) for one in plans if _is_keyed(one)}:
        steps.append(scripts.keyed_step(request.only(keyed))[0])
    if shared := {id(one) for one in plans if _is_shared(one)}:
        steps.append(scripts.shared_step(request.only(shared)))
    steps.append(step)
    if not runner.chains(steps):
        return None
    chain = _chain(tuple(one.script for one in steps))
    replies = await runner.run_chain(chain, steps)
    for counted in replies[: len(steps) - 1]:
        current(counted)
    return replies[-1]


def _kind(conclusion: Conclusion) -> Kind:
    end, until = conclusion.end, conclusion.until
    return _ENDS[end], kept_until(until) if end is End.KEEP else until, 0


async def _conclude(
    conclusions: Sequence[Conclusion], now: int, scripts: PolicyScripts, rules: Rules
) -> None:
    """Run both scripts at once; both again if the rules have changed."""
    subjects = [one.subject for one in conclusions]
    numbers = PlanCompiler(rules, now).each(subjects)
    first = conclusions[0]
    kinds: list[Kind] | None = None
    if any(_kind(one) != _kind(first) for one in conclusions):
        kinds = [_kind(one) for one in conclusions]
    request = PolicyRequest(subjects, numbers, _kind(first), kinds)
    plans = request.plans.values()
    calling = [
        call(request.only({id(one) for one in plans if concerns(one)}))
        for call, concerns in ((scripts.keyed, _is_keyed), (scripts.shared, _is_shared))
        if any(map(concerns, plans))
    ]
    for reply in await asyncio.gather(*calling, return_exceptions=True):
        if isinstance(reply, BaseException):
            raise reply


def _is_keyed(numbers: CompiledPlan) -> bool:
    return bool(numbers.keyed)


def _is_shared(numbers: CompiledPlan) -> bool:
    return bool(numbers.shared)
