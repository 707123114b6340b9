"""Whole batches whose shared rules have room for everybody: the same answers as one by one, for
less. What keys share is then asked and written once a batch; what is kept with a key, by message.

Whatever is not beyond doubt goes the ordinary way, message by message through `engine`.
"""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Sequence

from penstock.limits import engine
from penstock.limits.books import Account, Books
from penstock.limits.counter import TIDY, Counter
from penstock.limits.rules import CapRule, Plan, Rules
from penstock.model.decision import Conclusion, Decision, End, Subject


class Batch:
    """Messages with their plans, of which there are mostly few."""

    def __init__(self, rules: Rules, subjects: Sequence[Subject]) -> None:
        self.rules = rules
        self.subjects = subjects
        self.plans = rules.plans(subjects)
        self.distinct = {id(plan): plan for plan in self.plans}

    def has_room(self, now: int, books: Books) -> bool:
        """Does no rule that keys share refuse anybody, if all the batch goes out?"""
        numbers = Numbers(map(id, self.plans))
        caps: Numbers[str] = Numbers()
        paces: Numbers[str] = Numbers()
        for place, plan in self.distinct.items():
            for cap in plan.shared:
                caps[cap.counter] += numbers[place]
            for pace in plan.all_paces():
                paces[pace.state] += numbers[place]
        return all(
            _fits(cap, caps[cap.counter], now, books)
            for plan in self.distinct.values()
            for cap in plan.shared_asked
        ) and all(
            pace.rate.fits(books.pace(pace), now, paces[pace.state], whole=pace.whole)
            for plan in self.distinct.values()
            for pace in plan.paces
        )

    def decide(self, now: int, until: int, books: Books) -> list[Decision]:
        """When there is room in everything shared."""
        quiet = {place for place, plan in self.distinct.items() if engine.quiet_findings(plan, now)}
        passed: dict[int, list[str]] = {place: [] for place in self.distinct}
        suppressed = books.suppressed
        decisions = []
        for subject, plan in zip(self.subjects, self.plans, strict=True):
            place = id(plan)
            if (
                place not in quiet
                and (subject.expires is None or subject.expires > now)
                and not (suppressed and subject.key in suppressed)
                and _reserved(plan, subject, now, until, books)
            ):
                passed[place].append(subject.id)
                decisions.append(plan.allowed)
            else:
                decisions.append(engine.decide(self.rules, subject, now, until, books))
        for place, plan in self.distinct.items():
            _reserve_shared(plan, passed[place], now, until, books)
        return decisions

    def count(self, now: int, books: Books) -> None:
        """All of these were sent now."""
        sent: dict[int, list[str]] = {place: [] for place in self.distinct}
        for subject, plan in zip(self.subjects, self.plans, strict=True):
            sent[id(plan)].append(subject.id)
            if plan.own:
                _count_own(plan, subject, now, books)
        for place, plan in self.distinct.items():
            for cap in plan.shared:
                _count_shared(cap, sent[place], now, books)


def all_sent(conclusions: Sequence[Conclusion]) -> bool:
    return all(conclusion.end is End.COMMIT for conclusion in conclusions)


def _fits(cap: CapRule, number: int, now: int, books: Books) -> bool:
    limit = cap.limit
    if limit.interval:
        return False
    counter = books.counter(cap, "")
    return (0 if counter is None else limit.used(counter, now)) + number <= limit.limit


def _reserved(plan: Plan, subject: Subject, now: int, until: int, books: Books) -> bool:
    """Take a place in every cap kept with the key; False, and nothing is taken: one refuses."""
    own = plan.own
    if not own:
        return True
    name = "=" + subject.key
    account = books.accounts.get(name)
    me = subject.id
    if account is None:
        books.accounts[name] = {cap.counter: Counter([], [], {me: until}) for cap in own}
    else:
        for cap in plan.own_asked:
            counter = account.get(cap.counter)
            if (
                counter is not None
                and (len(counter.times) + len(counter.held) >= cap.limit.surely or counter.counts)
                and cap.limit.free_at(counter, now, me)
            ):
                return False
        _hold_own(own, account, me, now, until)
    books.changed_accounts.add(name)
    return True


def _hold_own(own: list[CapRule], account: Account, me: str, now: int, until: int) -> None:
    for cap in own:
        counter = account.get(cap.counter)
        if counter is None:
            account[cap.counter] = Counter([], [], {me: until})
        elif counter.times or len(counter.held) >= TIDY - 1:
            cap.limit.hold(counter, me, now, until)
        elif counter.held.get(me, 0) >= -now:
            counter.held[me] = until


def _reserve_shared(plan: Plan, ids: list[str], now: int, until: int, books: Books) -> None:
    if not ids:
        return
    for cap in plan.shared:
        cap.limit.hold_all(books.open_counter(cap, ""), ids, now, until)
    for pace in plan.all_paces():
        pace.rate.go(books.open_pace(pace), now, len(ids))


def _count_shared(cap: CapRule, ids: list[str], now: int, books: Books) -> None:
    if cap.shadow:
        known = books.counter(cap, "")
        ids = [] if known is None else [me for me in ids if me in known.held]
    if ids:  # a shadow would have held the others back
        cap.limit.count_all(books.open_counter(cap, ""), ids, now)


def _count_own(plan: Plan, subject: Subject, now: int, books: Books) -> None:
    name = "=" + subject.key
    books.changed_accounts.add(name)
    account = books.accounts.get(name)
    if account is None:
        account = books.accounts[name] = {}
    me = subject.id
    for cap in plan.own:
        counter = account.get(cap.counter)
        if counter is None:
            if cap.shadow:
                continue  # it would have held it back
            counter = account[cap.counter] = Counter([], [], {})
        elif cap.shadow and me not in counter.held:
            continue
        cap.limit.count(counter, me, now)
