"""What decisions read and change: counters by account, paces, and who is suppressed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from penstock.limits.counter import Counter
from penstock.limits.pace import PaceState
from penstock.limits.rules import CapRule, PaceRule, Rules
from penstock.model.decision import Subject

Account: TypeAlias = dict[str, Counter]


def account_of(key: str) -> str:
    """Where the counters of one key are kept together; no other account begins like this."""
    return f"={key}"


class Books:
    """The part of the counters that a batch needs, loaded before and written back after."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.paces: dict[str, PaceState] = {}
        self.suppressed: dict[str, Collection[str]] = {}
        """Key → the lists it is on."""
        self.changed_accounts: set[str] = set()
        self.changed_paces: set[str] = set()

    def own(self, key: str) -> Account | None:
        """The counters kept with the key."""
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
        counter = account.get(cap.counter)
        if counter is None:
            counter = account[cap.counter] = Counter()
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
    """What has to be loaded before a batch is decided or concluded."""

    def __init__(self, rules: Rules, subjects: Sequence[Subject]) -> None:
        self.accounts: set[str] = set()
        self.paces: set[str] = set()
        self.keys: set[str] = set()
        """Keys that may be suppressed."""
        plans = rules.plans(subjects)
        for subject, plan in zip(subjects, plans, strict=True):
            if plan.keyed:
                self.accounts.add("=" + subject.key)  # account_of, without the call
            if plan.suppressions:
                self.keys.add(subject.key)
        for plan in {id(plan): plan for plan in plans}.values():
            self.accounts.update(cap.account for cap in plan.shared if cap.account is not None)
            self.paces.update(pace.state for pace in plan.all_paces())
