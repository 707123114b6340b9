"""The data that decisions read and change: counters by account, paces, and suppressed keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

from penstock.limits.counter import Counter
from penstock.limits.pace import PaceState
from penstock.limits.rules import CapRule, PaceRule, Rules
from penstock.model.decision import Subject

Account: TypeAlias = dict[str, Counter]
"""Name → counter. Caps that have always counted the same sends share one counter under several
names.
"""


class Held(NamedTuple):
    """Reservations that messages of one plan took, where nothing else was changed."""

    own: tuple[tuple[str, ...], ...]
    """Names of the counters kept with each key, grouped by what counts together,"""
    shared: tuple[str, ...]
    """and names of those that keys share."""
    keys: list[str]
    ids: list[str]


def open_counters(account: Account, names: tuple[str, ...]) -> Sequence[Counter]:
    """The counters for exactly `names`: creates missing ones and splits shared ones."""
    first = account.get(names[0]) if names else None
    if first is not None and first.names == names:
        return (first,)
    there = {id(c): c for name in names if (c := account.get(name)) is not None}
    found = [_parted(account, counter, names) for counter in there.values()]
    missing = tuple(name for name in names if name not in account)
    if missing:
        found.append(Counter(names=missing))
        account.update(dict.fromkeys(missing, found[-1]))
    return found


def _parted(account: Account, counter: Counter, names: tuple[str, ...]) -> Counter:
    """The part of a counter that is under some of the names, split off if other names share it."""
    inside = tuple(name for name in counter.names if name in names)
    if len(inside) == len(counter.names):
        return counter
    counter.names = tuple(name for name in counter.names if name not in names)
    own = Counter(counter.times, counter.counts, counter.held.copy(), counter.last, inside)
    account.update(dict.fromkeys(inside, own))
    return own


def account_of(key: str) -> str:
    """The account with the counters of one key; no other account begins like this."""
    return f"={key}"


class Books:
    """The part of the counters that a batch needs, loaded before and written back after."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.paces: dict[str, PaceState] = {}
        self.suppressed: dict[str, Collection[str]] = {}
        """Key → the lists it is on."""
        self.changed_accounts: set[str] = set()
        """Accounts that changed in more than the reservations in `held`."""
        self.held: list[Held] = []
        self.changed_paces: set[str] = set()

    def own(self, key: str) -> Account | None:
        """The counters of the key."""
        return self.accounts.get(account_of(key))

    def open_own(self, key: str) -> Account:
        return self.open_shared(account_of(key))

    def open_shared(self, name: str) -> Account:
        """An account, made if need be, and noted as changed."""
        self.changed_accounts.add(name)
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = {}
        return account

    def counter(self, cap: CapRule, key: str) -> Counter | None:
        account = self.accounts.get(account_of(key) if cap.account is None else cap.account)
        return None if account is None else account.get(cap.counter)

    def open_counter(self, cap: CapRule, key: str) -> Counter:
        """The counter, made if need be, and noted as changed."""
        account = self.open_own(key) if cap.account is None else self.open_shared(cap.account)
        (counter,) = open_counters(account, (cap.counter,))
        return counter

    def pace(self, rule: PaceRule) -> PaceState:
        state = self.paces.get(rule.state)
        if state is None:
            state = self.paces[rule.state] = rule.rate.fresh()
        return rule.rate.adopt(state)

    def open_pace(self, rule: PaceRule) -> PaceState:
        self.changed_paces.add(rule.state)
        return self.pace(rule)


class Needs:
    """The rows to load before a batch is decided or concluded."""

    def __init__(self, rules: Rules, subjects: Sequence[Subject]) -> None:
        self.plans = rules.plans(subjects)
        self.distinct = dict(zip(map(id, self.plans), self.plans, strict=True))
        plans = self.distinct.values()
        self.names = ["=" + subject.key for subject in subjects]
        """The account of each subject (account_of, without the call), whether it has any cap there
        or not: made once, because a text is found faster once its hash is known.
        """
        self.accounts = [cap.counter for plan in plans for cap in plan.shared]
        """The accounts to load, including those of the keys; some occur more than once."""
        if any(plan.keyed for plan in plans):
            self.accounts += self.names
        self.paces = {pace.state for plan in plans for pace in plan.all_paces()}
        self.keys: set[str] = set()
        """Keys that may be suppressed."""
        if any(plan.suppressions for plan in plans):
            self.keys.update(subject.key for subject in subjects)
