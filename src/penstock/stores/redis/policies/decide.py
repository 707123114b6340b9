"""DECIDE on Redis: first in the shards of the keys, then in the slot of what keys share.

The first script reserves every cap that is kept with a key; the second decides the rest, all or
nothing, and where it refuses, the first is released. Whoever comes between the two sees the place
taken: a cap is never exceeded, and the worst is that somebody waits for a place that comes free.

For a caller on its own, a batch gives the answers that its messages would get one by one. Only one
thing could differ: a message that was refused because one before it, of the same key, had reserved
the place that the second script then made it give back. There the second script stops, and the
rest of the batch is decided again. What refused before is then expected to refuse again, so that
nothing is reserved for it first: a round more for every shared rule that refuses, not for every
message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.limits import engine
from penstock.limits.engine import Finding, Findings
from penstock.limits.rules import CapRule, PaceRule, QuietRule, Rules
from penstock.model.decision import Decision, Subject
from penstock.model.verdict import Verdict
from penstock.redis_kit.connect import Reply
from penstock.stores.redis.policies.asked import DECIDE, LOOK, REFUSE, RELEASE, Asked, Work
from penstock.stores.redis.policies.calls import Calls
from penstock.stores.redis.policies.compiled import Numbers, NumbersOf

_RESERVED, _UNSURE = 1, 2
_HELD_BEFORE = -1
"""Answer of the first script: reserved, by a decision before this batch."""
_AGAIN = 1
"""Answer of the second script: nothing refused what was expected to be refused."""


class _Found(NamedTuple):
    """What is known of a message before the second script."""

    numbers: Numbers
    refused: Decision | None
    """Outright: expired or suppressed."""
    findings: list[tuple[int, Finding]]
    """(place among the plan's rules, finding) of caps kept with the key."""
    ready: int
    fresh: bool
    """It held no place before this batch."""


class Batch:
    """A batch being decided."""

    def __init__(self, calls: Calls, rules: Rules, subjects: Sequence[Subject], now: int) -> None:
        self._calls = calls
        self._subjects = subjects
        self._now = now
        self._plans = NumbersOf(rules, now).each(subjects)
        self._plain: dict[int, _Found] = {}
        """What is found of messages that nothing refuses, the same for all of a plan."""
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
        """Is there nothing to these messages but their plans, and do all go the same way?"""
        plans = list({id(numbers): numbers for numbers in self._plans}.values())
        return (
            all(numbers.is_plain for numbers in plans)
            and len({(numbers.with_key, numbers.with_all) for numbers in plans}) == 1
            and all(
                subject.expires is None and subject.decided is None for subject in self._subjects
            )
        )

    async def _decide_alike(self) -> tuple[list[_Found], list[Reply] | None] | None:
        """The first round of them as one; what it found, unless everybody may go."""
        with_key, with_all = self._plans[0].with_key, self._plans[0].with_all
        if not (with_key or with_all):
            await self._shared(())  # the version must be looked at somewhere
            return None
        asked = Asked(self._subjects, self._plans, (DECIDE, 0, _RESERVED))
        said = await self._calls.keyed(asked) if with_key else None
        if said is None:
            answers = await self._calls.shared(asked) if with_all else None
            if answers is None:
                return None
            return [self._plainly(numbers) for numbers in self._plans], answers
        found = [
            self._plainly(numbers) if reply == 0 else _found(numbers, None, _RESERVED, reply)
            for numbers, reply in zip(self._plans, said, strict=True)
        ]
        return found, None

    async def _first(self, first: int, released: list[Work]) -> list[_Found]:
        """Everything but shared rules, of the messages from `first` on."""
        works = list(released)
        known: list[tuple[Numbers, Decision | None, int]] = []
        for place in range(first, len(self._subjects)):
            subject, numbers = self._subjects[place], self._plans[place]
            late = None if subject.expires is None else engine.expired(subject, self._now)
            ready = self._readiness(place, numbers)
            known.append((numbers, late, ready))
            if numbers.with_key:
                what = DECIDE if ready == _RESERVED else REFUSE
                works.append(Work(subject, numbers, RELEASE if late else what))
        replies = iter((await self._keyed(works))[len(released) :])
        found = []
        for numbers, late, ready in known:
            reply = next(replies) if numbers.with_key else 0
            if reply == 0 and late is None and ready == _RESERVED:
                found.append(self._plainly(numbers))
            else:
                found.append(_found(numbers, late, ready, reply))
        return found

    def _plainly(self, numbers: Numbers) -> _Found:
        known = self._plain.get(id(numbers))
        if known is None:
            known = self._plain[id(numbers)] = _found(numbers, None, _RESERVED, 0)
        return known

    def _readiness(self, place: int, numbers: Numbers) -> int:
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
        """An answer each, until one that has to be decided anew."""
        works = []
        places = []
        holding: set[str] = set()
        """Keys that may have to give back a place."""
        for number, known in enumerate(found):
            subject = self._subjects[first + number]
            if known.numbers.with_all or (known.findings and subject.key in holding):
                places.append(number)
                works.append(_shared_work(subject, known))
                if known.ready == _RESERVED and known.numbers.keyed:
                    holding.add(subject.key)
        answers: list[Reply] = [0] * len(found)
        if not works:
            if not any(known.numbers.with_key for known in found):
                await self._shared(works)  # the version must be looked at somewhere
            return answers
        for number, reply in zip(places, await self._shared(works), strict=False):
            if reply is None or reply == _AGAIN:
                return answers[:number]
            answers[number] = reply
        return answers

    async def _keyed(self, works: Sequence[Work]) -> list[Reply]:
        said = await self._calls.keyed(Asked.of(works)) if works else None
        return [0] * len(works) if said is None else said

    async def _shared(self, works: Sequence[Work]) -> list[Reply]:
        said = await self._calls.shared(Asked.of(works))
        return [0] * len(works) if said is None else said

    def _take(
        self, found: list[_Found], answers: list[Reply], decisions: list[Decision]
    ) -> list[Work]:
        """Decide what was answered; the places to be given back."""
        released = []
        for known, answer in zip(found, answers, strict=True):
            subject = self._subjects[len(decisions)]
            decision = self._decision(subject, known, answer)
            decisions.append(decision)
            reserved = known.ready == _RESERVED and known.numbers.keyed
            if reserved and decision.verdict is not Verdict.ALLOW:
                released.append(Work(subject, known.numbers, RELEASE))
        return released

    def _undone(self, found: list[_Found], first: int, decided: int) -> list[Work]:
        """Places reserved for messages that will be decided anew, in their turn."""
        return [
            Work(self._subjects[place], found[place - first].numbers, RELEASE)
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
        """Each on its own, with what every rule says; nothing is written."""
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
            self._told(
                subject,
                one,
                next(said) if one.with_key else 0,
                next(answered) if one.with_all else 0,
            )
            for subject, one in pairs
        ]

    def _told(self, subject: Subject, numbers: Numbers, said: Reply, answered: Reply) -> Decision:
        late = engine.expired(subject, self._now)
        known = _found(numbers, late, 0, said)
        found = [*known.findings, *(shared_findings(numbers, answered) if answered else [])]
        used = {id(f.rule): f.used for _, f in found}
        refusing = [(place, f) for place, f in found if f.until]

        def count(cap: CapRule) -> int:
            return used.get(id(cap), 0)

        findings = in_order(numbers, refusing)
        return engine.tell(numbers.plan, subject, self._now, findings, known.refused, count)


def _found(numbers: Numbers, late: Decision | None, ready: int, reply: Reply) -> _Found:
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


def shared_findings(numbers: Numbers, answer: Reply) -> list[tuple[int, Finding]]:
    return [
        numbers.shared_finding(answer[i], answer[i + 1], answer[i + 2])
        for i in range(0, len(answer), 3)
    ]


def in_order(numbers: Numbers, found: list[tuple[int, Finding]]) -> Findings:
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
    """With what was found before, as the script needs it to give out slots."""
    numbers = known.numbers
    if known.refused is not None:
        return Work(subject, numbers, RELEASE)
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
    until, taken = (0, 1) if latest is None else (latest.until, 1)
    if latest is not None and isinstance(latest.rule, QuietRule):
        taken = int(engine.spread(numbers.plan, latest, subject, end or None) == latest.until)
    slot = 0
    for number, pace in enumerate(numbers.paces, start=1):
        if engine.waits_for(pace, subject):
            slot = number
    more = [
        int(bool(known.findings)),
        until,
        end,
        taken,
        int(any(finding.rule.blocks for finding in acting)),
        engine.waiting_since(subject),
        slot,
    ]
    return Work(subject, numbers, what, ready=known.ready, more=more)


def _until(finding: Finding) -> int:
    return finding.until
