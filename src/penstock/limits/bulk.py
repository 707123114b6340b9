"""Whole batches over loaded books: the steps of every store between loading and writing back.

A batch whose shared rules have room for all gets the same answers as one by one, at a lower cost:
shared counters are read and written once per batch, counters of a key once per message. Every batch
that might differ goes message by message through `engine`.
"""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Sequence

from penstock.limits import engine
from penstock.limits.books import Account, Books, Held, Needs, open_counters
from penstock.limits.counter import TIDY, Counter, reserved_until
from penstock.limits.rules import CapRule, CounterGroup, Plan, Rules
from penstock.model.decision import Conclusion, Decision, End, PaceAllowance, Subject

_COMMIT = End.COMMIT  # an attribute of an enumeration takes its time


class Batch:
    """Messages with their plans, of which there are mostly few."""

    def __init__(self, rules: Rules, subjects: Sequence[Subject], needs: Needs) -> None:
        self.rules = rules
        self.subjects = subjects
        self.plans = needs.plans
        self.names = needs.names
        self.distinct = needs.distinct

    def has_room(self, now: int, books: Books) -> bool:
        """Does no rule that keys share refuse anybody, if all the batch goes out?"""
        numbers = (
            dict.fromkeys(self.distinct, len(self.plans))
            if len(self.distinct) == 1
            else Numbers(map(id, self.plans))
        )
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
        """Decide the batch, if all shared rules have room for it."""
        quiet = {place for place, plan in self.distinct.items() if engine.quiet_findings(plan, now)}
        passed: dict[int, list[Subject]] = {place: [] for place in self.distinct}
        suppressed, accounts = books.suppressed, books.accounts
        decisions: list[Decision] = []
        for subject, plan, name in zip(self.subjects, self.plans, self.names, strict=True):
            place = id(plan)
            if (
                place not in quiet
                and (subject.expires is None or subject.expires > now)
                and not (suppressed and subject.key in suppressed)
                and _reserved(plan, name, subject.id, now, until, accounts)
            ):
                passed[place].append(subject)
                decisions.append(plan.allowed)
            else:
                decisions.append(engine.decide(self.rules, subject, now, until, books))
        for place, plan in self.distinct.items():
            if passed[place]:
                _reserve_shared(plan, passed[place], now, until, books)
        return decisions

    def count(self, now: int, books: Books) -> None:
        """Count all messages as sent now."""
        sent: dict[int, list[str]] = {place: [] for place in self.distinct}
        if len(self.distinct) == 1:
            (plan,) = self.distinct.values()
            ids = [subject.id for subject in self.subjects]
            sent[id(plan)] = ids
            _count_keyed(plan, self.names, ids, now, books)
        else:
            for subject, plan, name in zip(self.subjects, self.plans, self.names, strict=True):
                sent[id(plan)].append(subject.id)
                _count_keyed(plan, (name,), (subject.id,), now, books)
        for place, plan in self.distinct.items():
            for cap in plan.shared:
                _count_shared(cap, sent[place], now, books)


def all_sent(conclusions: Sequence[Conclusion]) -> bool:
    return not [conclusion for conclusion in conclusions if conclusion.end is not _COMMIT]


def _fits(cap: CapRule, number: int, now: int, books: Books) -> bool:
    limit = cap.limit
    if limit.interval:
        return False
    counter = books.counter(cap, "")
    return number <= limit.limit if counter is None else limit.has_room(counter, now, number)


def _reserved(
    plan: Plan, name: str, me: str, now: int, until: int, accounts: dict[str, Account]
) -> bool:
    """Reserve every cap kept with the key; False, and nothing is reserved: it has a reservation, or
    is counted, or a cap refuses.
    """
    if not plan.counter_groups:
        return True
    account = accounts.get(name)
    if account is None:
        for group in plan.counter_groups:
            first = dict.fromkeys(group.names, Counter((), (), {me: until}, 0, group.names))
            account = first if account is None else account | first
        accounts[name] = account or {}
        return True
    for group in plan.counter_groups:
        for counter in open_counters(account, group.names):
            if me in counter.held or _refuses(group, counter, now, me):
                return False
    for group in plan.counter_groups:
        for counter in open_counters(account, group.names):
            held = counter.held
            if len(held) >= TIDY - 1:
                group.limit.hold(counter, me, now, until)
            else:
                held[me] = until
    return True


def _refuses(group: CounterGroup, counter: Counter, now: int, me: str) -> bool:
    if len(counter.times) + len(counter.held) < group.always_allows_below and not counter.counts:
        return False
    return any(
        cap.counter in counter.names and cap.limit.free_at(counter, now, me)
        for cap in group.enforcing
    )


def _reserve_shared(plan: Plan, passed: list[Subject], now: int, until: int, books: Books) -> None:
    ids = [subject.id for subject in passed]
    shared = []
    for cap in plan.shared:
        account = books.accounts.setdefault(cap.counter, {})
        (counter,) = open_counters(account, (cap.counter,))
        if counter.held.keys().isdisjoint(ids):
            shared.append(cap.counter)
        else:  # some have a place, or are counted
            books.changed_accounts.add(cap.counter)
        cap.limit.hold_all(counter, ids, now, until)
    for pace in plan.all_paces():
        pace.rate.go(books.open_pace(pace), now, len(ids))
    if plan.counter_groups or shared:
        own = tuple([group.names for group in plan.counter_groups])
        keys = [subject.key for subject in passed]
        books.held.append(Held(own, tuple(shared), keys, ids))


def _count_shared(cap: CapRule, ids: list[str], now: int, books: Books) -> None:
    if cap.shadow:
        known = books.counter(cap, "")
        ids = [] if known is None else [me for me in ids if me in known.held]
    if ids:  # a shadow would have deferred the others
        cap.limit.count_all(books.open_counter(cap, ""), ids, now)


def _count_keyed(
    plan: Plan, names: Sequence[str], ids: Sequence[str], now: int, books: Books
) -> None:
    """Count in the caps kept with the keys, whose accounts these are."""
    if not plan.counter_groups:
        return
    books.changed_accounts.update(names)
    accounts = books.accounts
    for group in plan.counter_groups:
        first, together, count, shadow = group.first, group.names, group.count, group.shadow
        for name, me in zip(names, ids, strict=True):
            account = accounts.get(name)
            if account is None:
                account = accounts[name] = {}
            counter = account.get(first)
            if counter is None or shadow or counter.names != together:
                _count_own(group, account, me, now)
            else:
                count(counter, me, now)


def _count_own(group: CounterGroup, account: Account, me: str, now: int) -> None:
    if group.shadow:
        counter = account.get(group.first)
        if counter is None or me not in counter.held:
            return  # the shadow would have deferred it
    for part in open_counters(account, group.names):
        group.limit.count(part, me, now)


def decide_batch(
    rules: Rules,
    subjects: Sequence[Subject],
    now: int,
    hold: int,
    books: Books,
    needs: Needs | None = None,
) -> list[Decision]:
    """One decision each, in order: the same as one by one. `needs`: of these subjects, if known."""
    until = reserved_until(now + hold)
    batch = Batch(rules, subjects, needs or Needs(rules, subjects))
    if batch.has_room(now, books):
        return batch.decide(now, until, books)
    return [engine.decide(rules, subject, now, until, books) for subject in subjects]


def explain_batch(
    rules: Rules, subjects: Sequence[Subject], now: int, books: Books
) -> list[Decision]:
    return [engine.explain(rules, subject, now, books) for subject in subjects]


def conclude_batch(
    rules: Rules,
    conclusions: Sequence[Conclusion],
    now: int,
    books: Books,
    needs: Needs | None = None,
) -> None:
    """`needs`: of their subjects, where they are known."""
    if all_sent(conclusions):
        subjects = [conclusion.subject for conclusion in conclusions]
        count_batch(rules, subjects, now, books, needs or Needs(rules, subjects))
        return
    for conclusion in conclusions:
        engine.conclude(rules, conclusion, now, books)


def count_batch(
    rules: Rules, subjects: Sequence[Subject], now: int, books: Books, needs: Needs
) -> None:
    """Count all subjects as sent now."""
    Batch(rules, subjects, needs).count(now, books)


def room_on(rules: Rules, route: str, now: int, books: Books) -> PaceAllowance | None:
    """The allowance of the paces that cover the whole route; None: there is no such pace."""
    rooms = [pace.rate.room(books.pace(pace), now) for pace in rules.whole_paces(route)]
    if not rooms:
        return None
    number = min(number for number, _ in rooms)
    return PaceAllowance(number, None if number else max(again for _, again in rooms))
