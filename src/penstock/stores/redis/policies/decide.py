"""DECIDE on Redis: first in the shards of the keys, then in the slot that keys share.

The first script reserves every cap that is kept with a key; the second decides the rest, all or
nothing, and where it refuses, the first is released. Another caller between the two sees the
reservation: a cap is never exceeded, and at worst that caller waits for a unit that is released.

For a caller on its own, a batch gives the answers that its messages would get one by one. Only one
case could differ: a message refused because an earlier one, of the same key, had reserved the unit
that the second script then released. There the second script stops, and the rest of the batch is
decided again. A message refused before is then expected to be refused again, so that nothing is
reserved for it first: one more round for every shared rule that refuses, not for every message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import compress, groupby
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from penstock.limits import engine
from penstock.limits.engine import Finding, Findings
from penstock.limits.rules import CapRule, PaceRule, Rules
from penstock.model.decision import Decision, Subject
from penstock.model.verdict import Verdict
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.runner import Group, Plan, Runner, Step
from penstock.redis_kit.scripts import Chain, Script
from penstock.stores.redis.messages.records import pack_ids
from penstock.stores.redis.policies.compiled import CompiledPlan, PlanCompiler
from penstock.stores.redis.policies.keys import CounterKeys, ShardKeys

_KEYED = Script("stores/redis/policies/keyed.lua")
_SHARED = Script("stores/redis/policies/shared.lua")
_BOTH = Chain((_KEYED, _SHARED))
_RESERVED, _UNSURE = 1, 2
_HELD_BEFORE = -1
"""Answer of the first script: reserved, by a decision before this batch."""
_AGAIN = 1
"""Answer of the second script: a message expected to be refused was not."""
DECIDE, REFUSE, LOOK, RELEASE, COMMIT, KEEP = range(6)
"""Actions on a message, numbered as in common.lua."""
MARK_BYTES = 16
Kind: TypeAlias = tuple[int, int, int]
"""(action, KEEP: hold until, `ready` of shared.lua)."""
MARGIN_MS = 3_600_000
"""Counters live this much longer than they can matter."""
Answers: TypeAlias = list[Reply] | None
"""One per message; None: 0 (nothing found) for each."""
_encode = msgspec.msgpack.Encoder().encode


class Work(NamedTuple):
    """One message in a call."""

    subject: Subject
    numbers: CompiledPlan
    what: int
    until: int = 0
    """KEEP: hold the place until then. RELEASE: give it back unless a later decision has it."""
    ready: int = 0
    more: Plan | int = 0
    """See shared.lua."""


class PolicyRequest:
    """Messages of one call and the action for each: one common action, or one in `kinds`."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        numbers: Sequence[CompiledPlan],
        kind: Kind,
        kinds: Sequence[Kind] | None = None,
        more: Sequence[Plan | int] | None = None,
    ) -> None:
        self.subjects = subjects
        self.numbers = numbers
        self.marks: Sequence[bytes] = _marks_of([subject.id for subject in subjects])
        self.more = more
        self.plans = {id(one): one for one in numbers}
        """The distinct ones: messages of one plan share theirs."""
        self._kind = kind
        self._kinds = kinds

    @classmethod
    def of(cls, works: Sequence[Work]) -> PolicyRequest:
        return cls(
            [work.subject for work in works],
            [work.numbers for work in works],
            (LOOK, 0, 0),
            [(work.what, work.until, work.ready) for work in works],
            [work.more for work in works] if any(work.more for work in works) else None,
        )

    def only(self, plans: set[int]) -> PolicyRequest:
        """The same request for the messages of these plans alone (by their `id`)."""
        if len(plans) == len(self.plans):
            return self
        wanted = [id(one) in plans for one in self.numbers]
        some = PolicyRequest((), (), self._kind)
        some.subjects = list(compress(self.subjects, wanted))
        some.numbers = list(compress(self.numbers, wanted))
        some.marks = list(compress(self.marks, wanted))
        some.plans = {plan: self.plans[plan] for plan in self.plans if plan in plans}
        some._kinds = None if self._kinds is None else list(compress(self._kinds, wanted))
        return some

    @property
    def writes(self) -> bool:
        kinds: Iterable[Kind] = (self._kind,) if self._kinds is None else self._kinds
        return any(kind[0] != LOOK for kind in kinds)

    def runs(self, places: Sequence[int]) -> tuple[list[CompiledPlan], Plan]:
        """The plans of the messages at these indexes, and { what, plan, until, ready, how many in a
        row … } of them.
        """
        if self._kinds is None and len(self.plans) == 1:
            what, until, ready = self._kind
            return [*self.plans.values()], [what, 1, until, ready, len(places)]
        known: dict[int, int] = {}
        each = []
        for place in places:
            plan = known.setdefault(id(self.numbers[place]), len(known) + 1)
            each.append((plan, self._kind if self._kinds is None else self._kinds[place]))
        runs: Plan = []
        for (plan, (what, until, ready)), same in groupby(each):
            runs += (what, plan, until, ready, len(list(same)))
        return [self.plans[one] for one in known], runs


def _marks_of(ids: Sequence[str]) -> list[bytes]:
    """Ids in 16 bytes each: a UUID's own, or a digest that no other id of the key has."""
    return [
        packed if len(packed) == MARK_BYTES else hashlib.md5(packed, usedforsecurity=False).digest()
        for packed in pack_ids(ids)
    ]


class StaleRules(Exception):
    """A part of the store has seen a newer version than the caller's."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class PolicyScripts:
    """Runs the two policy scripts for one version of the rules at one moment."""

    def __init__(
        self, runner: Runner, keys: CounterKeys, rules: Rules, now: int, hold_until: int
    ) -> None:
        self._runner = runner
        self._keys = keys
        self.hold_until = hold_until
        self._common: list[Argument] = [
            now,
            hold_until,
            rules.version,
            rules.keeps + max(0, hold_until - now) + MARGIN_MS,
        ]
        self._living = _encode(list(rules.names))

    async def keyed(self, request: PolicyRequest) -> Answers:
        """Run keyed.lua in the shards of the messages' keys."""
        step, places = self.keyed_step(request)
        replies = await self._runner.run(*step, writes=request.writes)
        return _in_places(places, replies, len(request.subjects))

    async def both(self, request: PolicyRequest) -> tuple[Answers, Answers]:
        """Run keyed.lua, then shared.lua: unless the first has let every message go, the second
        may not have run (None, as when it has let every message go)."""
        first, places = self.keyed_step(request)
        second = self.shared_step(request)
        if not self._runner.chains((first, second)):
            said = await self.keyed(request)
            return said, await self.shared(request) if said is None else None
        replies = await self._runner.run_chain(_BOTH, (first, second))
        said = _in_places(places, replies[0], len(request.subjects))
        return said, None if len(replies) == 1 else _of_one(replies[1])

    def keyed_step(self, request: PolicyRequest) -> tuple[Step, list[list[int]]]:
        """The call of keyed.lua, and the places of the messages of each of its groups."""
        total = len(self._keys.shards)
        keys: list[list[bytes]] = [[] for _ in range(total)]
        places: list[list[int]] = [[] for _ in range(total)]
        for place, subject in enumerate(request.subjects):
            key = subject.key.encode()
            number = crc32(key) % total
            keys[number].append(key)
            places[number].append(place)
        used = [number for number in range(total) if keys[number]]
        groups = [
            self._keyed_group(request, self._keys.shards[number], keys[number], places[number])
            for number in used
        ]
        return Step(_KEYED, groups, [*self._common, self._living]), [places[one] for one in used]

    def _keyed_group(
        self, request: PolicyRequest, shard: ShardKeys, keys: list[bytes], places: Sequence[int]
    ) -> Group:
        plans, runs = request.runs(places)
        lists: dict[str, int] = {}
        packed = [
            [
                [lists.setdefault(name, len(lists) + 1) for name in numbers.lists],
                numbers.keyed_caps,
                numbers.tail,
            ]
            for numbers in plans
        ]
        accounts = list(dict.fromkeys(keys))
        placed = len(accounts) < len(keys) and _accounts(keys)
        used = [shard.version, shard.accounts, *map(shard.list, lists)]
        plan = [len(lists), len(accounts), packed, runs, placed]
        ids = b"".join([request.marks[place] for place in places])
        return Group(shard.number, used, plan, [ids, *accounts])

    async def shared(self, request: PolicyRequest) -> Answers:
        """Run shared.lua in the shared slot; it may answer for fewer messages than requested."""
        return _of_one(await self._runner.run(*self.shared_step(request), writes=request.writes))

    def shared_step(self, request: PolicyRequest) -> Step:
        """The call of shared.lua."""
        keys = self._keys.shared
        plans, runs = request.runs(range(len(request.subjects)))
        counters: dict[str, int] = {}
        for numbers in plans:
            for _, cap in numbers.shared:
                counters.setdefault(cap.counter, len(counters) + 1)
        used = [keys.version, keys.paces]
        for name in counters:
            used += keys.counter(name)
        packed = [numbers.shared_plan(counters) for numbers in plans]
        more = request.more is not None and [
            _accounts([subject.key for subject in request.subjects]),
            request.more,
        ]
        group = Group(keys.number, used, [packed, runs, more], [b"".join(request.marks)])
        return Step(_SHARED, [group], self._common)


def _accounts(keys: Iterable[str] | Iterable[bytes]) -> list[int]:
    """A number per distinct key, in the order of first occurrence."""
    known: dict[str | bytes, int] = {}
    return [known.setdefault(key, len(known) + 1) for key in keys]


def _in_places(places: Sequence[Sequence[int]], replies: list[Reply], number: int) -> Answers:
    """The answers of keyed.lua, each in the place of its message."""
    if not any(current(replies)):
        return None
    answers: list[Reply] = [0] * number
    for some, reply in zip(places, replies, strict=True):
        if reply != 0:
            for place, answer in zip(some, reply, strict=True):
                answers[place] = answer
    return answers


def _of_one(replies: list[Reply]) -> Answers:
    """The answers of shared.lua, which has one group."""
    answers: list[Reply] | int = current(replies)[0]
    return None if isinstance(answers, int) else answers


def current(replies: list[Reply]) -> list[Reply]:
    """The same replies; raises if one reports newer rules."""
    stale = [int(reply) for reply in replies if isinstance(reply, bytes)]
    if stale:
        raise StaleRules(max(stale))
    return replies


class _Found(NamedTuple):
    """The result of the first script for one message."""

    numbers: CompiledPlan
    refused: Decision | None
    """Outright: expired or suppressed."""
    findings: list[tuple[int, Finding]]
    """(index among the plan's rules, finding) of caps kept with the key."""
    ready: int
    fresh: bool
    """True if it had no reservation before this batch."""


class DecisionBatch:
    """One batch of messages on its way through both scripts."""

    def __init__(
        self, scripts: PolicyScripts, rules: Rules, subjects: Sequence[Subject], now: int
    ) -> None:
        self._scripts = scripts
        self._subjects = subjects
        self._now = now
        self._plans = PlanCompiler(rules, now).each(subjects)
        self._plain: dict[int, _Found] = {}
        """Plan → the result of its messages that nothing refuses: one for all."""
        self._refusing: set[str] = set()
        """Shared rules that refused something: they will refuse more."""
        self._sure: set[int] = set()
        """Places of messages that were expected to be refused and were not."""

    async def decide(self) -> list[Decision]:
        decisions: list[Decision] = []
        released: list[Work] = []
        begun: tuple[list[_Found], list[Reply] | None] | None = None
        if self._is_plain():
            begun = await self._decide_alike()
            if begun is None:
                return [numbers.plan.allowed for numbers in self._plans]
        while len(decisions) < len(self._subjects):
            first = len(decisions)
            found, answers = begun or (await self._first(first, released), None)
            begun = None
            if answers is None:
                answers = await self._second(first, found)
            released = self._take(found[: len(answers)], answers, decisions)
            released += self._undone(found, first, len(decisions))
            if len(decisions) == first:
                self._sure.add(first)
        await self._keyed(released)
        return decisions

    def _is_plain(self) -> bool:
        """True if only caps and paces decide, and all messages go through the same scripts."""
        plans = list({id(numbers): numbers for numbers in self._plans}.values())
        return (
            all(numbers.is_plain for numbers in plans)
            and len({(numbers.with_key, numbers.with_all) for numbers in plans}) == 1
            and all(
                subject.expires is None and subject.decided is None for subject in self._subjects
            )
        )

    async def _decide_alike(self) -> tuple[list[_Found], list[Reply] | None] | None:
        """The first round for a plain batch; None if every message is allowed."""
        with_key, with_all = self._plans[0].with_key, self._plans[0].with_all
        if not (with_key or with_all):
            await self._shared(())  # one script must check the rules' version
            return None
        request = PolicyRequest(self._subjects, self._plans, (DECIDE, 0, _RESERVED))
        said, answers = None, None
        if with_key and with_all:
            said, answers = await self._scripts.both(request)
        elif with_key:
            said = await self._scripts.keyed(request)
        else:
            answers = await self._scripts.shared(request)
        if said is None:
            if answers is None:
                return None
            return [self._plainly(numbers) for numbers in self._plans], answers
        found = [
            self._plainly(numbers) if reply == 0 else _found(numbers, None, _RESERVED, reply)
            for numbers, reply in zip(self._plans, said, strict=True)
        ]
        return found, None

    async def _first(self, first: int, released: list[Work]) -> list[_Found]:
        """Run keyed.lua for the messages from `first` on; `released` are given back before."""
        works = list(released)
        known: list[tuple[CompiledPlan, Decision | None, int]] = []
        for place in range(first, len(self._subjects)):
            subject, numbers = self._subjects[place], self._plans[place]
            late = None if subject.expires is None else engine.expired(subject, self._now)
            ready = self._readiness(place, numbers)
            known.append((numbers, late, ready))
            if numbers.with_key:
                what = DECIDE if ready == _RESERVED else REFUSE
                works.append(
                    self._release(subject, numbers) if late else Work(subject, numbers, what)
                )
        replies = iter((await self._keyed(works))[len(released) :])
        found = []
        for numbers, late, ready in known:
            reply = next(replies) if numbers.with_key else 0
            if reply == 0 and late is None and ready == _RESERVED:
                found.append(self._plainly(numbers))
            else:
                found.append(_found(numbers, late, ready, reply))
        return found

    def _plainly(self, numbers: CompiledPlan) -> _Found:
        known = self._plain.get(id(numbers))
        if known is None:
            known = self._plain[id(numbers)] = _found(numbers, None, _RESERVED, 0)
        return known

    def _readiness(self, place: int, numbers: CompiledPlan) -> int:
        if numbers.is_quiet:
            return 0
        if self._refusing and place not in self._sure:
            for _, cap in numbers.shared:
                if cap.counter in self._refusing:
                    return _UNSURE
            for pace in numbers.paces:
                if pace.state in self._refusing:
                    return _UNSURE
        return _RESERVED

    async def _second(self, first: int, found: list[_Found]) -> list[Reply]:
        """An answer each, up to one that must be decided again."""
        works = []
        places = []
        holding: set[str] = set()
        """Keys that may have to give back a place."""
        for number, known in enumerate(found):
            subject = self._subjects[first + number]
            if known.numbers.with_all or (known.findings and subject.key in holding):
                places.append(number)
                works.append(
                    self._release(subject, known.numbers)
                    if known.refused is not None
                    else _shared_work(subject, known)
                )
                if known.ready == _RESERVED and known.numbers.keyed:
                    holding.add(subject.key)
        answers: list[Reply] = [0] * len(found)
        if not works:
            if not any(known.numbers.with_key for known in found):
                await self._shared(works)  # one script must check the rules' version
            return answers
        for number, reply in zip(places, await self._shared(works), strict=False):
            if reply is None or reply == _AGAIN:
                return answers[:number]
            answers[number] = reply
        return answers

    def _release(self, subject: Subject, numbers: CompiledPlan) -> Work:
        """Give back what this decision, or an earlier one, has reserved."""
        return Work(subject, numbers, RELEASE, self._scripts.hold_until)

    async def _keyed(self, works: Sequence[Work]) -> list[Reply]:
        said = await self._scripts.keyed(PolicyRequest.of(works)) if works else None
        return [0] * len(works) if said is None else said

    async def _shared(self, works: Sequence[Work]) -> list[Reply]:
        said = await self._scripts.shared(PolicyRequest.of(works))
        return [0] * len(works) if said is None else said

    def _take(
        self, found: list[_Found], answers: list[Reply], decisions: list[Decision]
    ) -> list[Work]:
        """Append a decision per answer; the reservations to give back."""
        released = []
        for known, answer in zip(found, answers, strict=True):
            subject = self._subjects[len(decisions)]
            decision = self._decision(subject, known, answer)
            decisions.append(decision)
            reserved = known.ready == _RESERVED and known.numbers.keyed
            if reserved and decision.verdict is not Verdict.ALLOW:
                released.append(self._release(subject, known.numbers))
        return released

    def _undone(self, found: list[_Found], first: int, decided: int) -> list[Work]:
        """Reservations of messages that will be decided again, to give back first."""
        return [
            self._release(self._subjects[place], found[place - first].numbers)
            for place in range(decided, first + len(found))
            if found[place - first].ready == _RESERVED
            and found[place - first].numbers.keyed
            and found[place - first].fresh
        ]

    def _decision(self, subject: Subject, known: _Found, answer: Reply) -> Decision:
        if known.refused is not None:
            return known.refused
        if not answer and not known.findings and not known.numbers.quiets:
            return known.numbers.plan.allowed
        found = [*known.findings]
        if answer:
            shared = shared_findings(known.numbers, answer)
            self._refusing.update(_name(f) for _, f in shared if not f.rule.shadow)
            found += shared
        return engine.judge(known.numbers.plan, subject, in_order(known.numbers, found))

    async def explain(self) -> list[Decision]:
        """Decide every message by itself, with the finding of every rule; nothing is written."""
        pairs = list(zip(self._subjects, self._plans, strict=True))
        keyed = [Work(subject, one, LOOK) for subject, one in pairs if one.with_key]
        shared = [
            _shared_work(subject, _Found(one, None, [], 0, True), LOOK)
            for subject, one in pairs
            if one.with_all
        ]
        said = iter(await self._keyed(keyed))
        answered = iter(await self._shared(shared) if shared or not keyed else ())
        return [
            self._explained(
                subject,
                one,
                next(said) if one.with_key else 0,
                next(answered) if one.with_all else 0,
            )
            for subject, one in pairs
        ]

    def _explained(
        self, subject: Subject, numbers: CompiledPlan, said: Reply, answered: Reply
    ) -> Decision:
        late = engine.expired(subject, self._now)
        known = _found(numbers, late, 0, said)
        found = [*known.findings, *(shared_findings(numbers, answered) if answered else [])]
        used = {id(f.rule): f.used for _, f in found}
        refusing = [(place, f) for place, f in found if f.until]

        def count(cap: CapRule) -> int:
            return used.get(id(cap), 0)

        findings = in_order(numbers, refusing)
        return engine.tell(numbers.plan, subject, self._now, findings, known.refused, count)


def _found(numbers: CompiledPlan, late: Decision | None, ready: int, reply: Reply) -> _Found:
    refused = late
    findings: list[tuple[int, Finding]] = []
    fresh = reply != _HELD_BEFORE
    if reply and fresh:
        suppressing, *rest = reply
        if suppressing and refused is None:
            refused = engine.suppressed(numbers.plan, numbers.lists[suppressing - 1])
        findings = [
            numbers.keyed_finding(rest[i], rest[i + 1], rest[i + 2]) for i in range(0, len(rest), 3)
        ]
    acts = any(not finding.rule.shadow for _, finding in findings if finding.until)
    if refused is not None or acts:
        ready = 0
    return _Found(numbers, refused, findings, ready, fresh)


def shared_findings(numbers: CompiledPlan, answer: Reply) -> list[tuple[int, Finding]]:
    return [
        numbers.shared_finding(answer[i], answer[i + 1], answer[i + 2])
        for i in range(0, len(answer), 3)
    ]


def in_order(numbers: CompiledPlan, found: list[tuple[int, Finding]]) -> Findings:
    """Quiet hours, caps, paces: the order in which they give the reason."""
    found.sort(key=_by_place)
    return [*numbers.quiets, *(finding for _, finding in found)]


def _by_place(found: tuple[int, Finding]) -> int:
    return found[0]


def _name(finding: Finding) -> str:
    rule = finding.rule
    if isinstance(rule, CapRule):
        return rule.counter
    return rule.state if isinstance(rule, PaceRule) else ""


def _shared_work(subject: Subject, known: _Found, what: int = DECIDE) -> Work:
    """The second script's part for one message, with the findings it needs to give out slots."""
    numbers = known.numbers
    if (
        not known.findings
        and not numbers.quiets
        and not numbers.defers
        and subject.expires is None
        and subject.decided is None
    ):
        return Work(subject, numbers, what, ready=known.ready)
    acting = [
        finding for finding in in_order(numbers, [*known.findings]) if not finding.rule.shadow
    ]
    latest = max(acting, key=_until, default=None)
    deadline = engine.deadline_of(subject, acting)
    end = 0 if deadline is None else deadline[0]
    until = 0 if latest is None else latest.until
    slot = 0
    for number, pace in enumerate(numbers.paces, start=1):
        if engine.waits_for(pace, subject):
            slot = number
    more = [
        int(bool(known.findings)),
        until,
        end,
        int(any(finding.rule.blocks for finding in acting)),
        engine.waiting_since(subject),
        slot,
    ]
    return Work(subject, numbers, what, ready=known.ready, more=more)


def _until(finding: Finding) -> int:
    return finding.until
