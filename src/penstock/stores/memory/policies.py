"""Policies and their counters in dicts, computed directly by the arithmetic of `limits`.

The answers of every other store are compared with these.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.limits.books import Books, account_of
from penstock.limits.bulk import conclude_batch, decide_batch, explain_batch, room_on
from penstock.limits.figures import figures
from penstock.limits.rules import Rules
from penstock.model.decision import Conclusion, CounterFigure, Decision, PaceAllowance, Subject
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.model.zone import DEFAULT_ZONE


class MemoryPolicies:
    """A PolicyStore for one process; its content ends with the process."""

    def __init__(self) -> None:
        self._default_zone = DEFAULT_ZONE
        self._born: dict[str, int] = {}
        self._keys: dict[str, set[str]] = {}
        """Suppression list → its keys."""
        self._rules = self._compiled(RuleBook())
        self.books = Books()

    def use_zone(self, zone: str) -> None:
        self._default_zone = zone
        self._rules = self._compiled(self._rules.book)

    async def book(self) -> RuleBook:
        return self._rules.book

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        book = self._rules.book
        if book.policies.get(policy_id) != policy:
            self._born.setdefault(policy_id, book.version + 1)
            self._change({**book.policies, policy_id: policy}, book.suppressions)
        return self._rules.version

    async def drop_policy(self, policy_id: str) -> bool:
        policies = dict(self._rules.book.policies)
        if policies.pop(policy_id, None) is None:
            return False
        del self._born[policy_id]
        self._change(policies, self._rules.book.suppressions)
        return True

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        self._keys[list_id] = set(suppression.keys)
        book = self._rules.book
        kept = msgspec.structs.replace(suppression, keys=())
        self._change(book.policies, {**book.suppressions, list_id: kept})
        return self._rules.version

    async def drop_suppression(self, list_id: str) -> bool:
        suppressions = dict(self._rules.book.suppressions)
        if suppressions.pop(list_id, None) is None:
            return False
        del self._keys[list_id]
        self._change(self._rules.book.policies, suppressions)
        return True

    async def suppression(self, list_id: str) -> Suppression | None:
        kept = self._rules.book.suppressions.get(list_id)
        if kept is None:
            return None
        return msgspec.structs.replace(kept, keys=tuple(sorted(self._keys[list_id])))

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        if list_id not in self._keys:
            return False
        self._keys[list_id] = (self._keys[list_id] | set(add)) - set(remove)
        return True

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        return decide_batch(self._rules, subjects, now, hold, self._loaded(subjects))

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        conclude_batch(self._rules, conclusions, now, self.books)

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        return explain_batch(self._rules, subjects, now, self._loaded(subjects))

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        return figures(self._rules, self.books.accounts.get(account_of(key), {}), key, now)

    async def forget(self, key: str, now: int) -> int:
        del now
        return len(self.books.accounts.pop(account_of(key), {}))

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        return room_on(self._rules, route, now, self.books)

    def _loaded(self, subjects: Sequence[Subject]) -> Books:
        self.books.held.clear()  # the counters hold everything
        self.books.suppressed = {
            subject.key: [
                list_id for list_id in sorted(self._keys) if subject.key in self._keys[list_id]
            ]
            for subject in subjects
        }
        return self.books

    def _change(self, policies: dict[str, Policy], suppressions: dict[str, Suppression]) -> None:
        book = RuleBook(
            self._rules.version + 1,
            dict(sorted(policies.items())),
            dict(sorted(suppressions.items())),
        )
        self._rules = self._compiled(book)

    def _compiled(self, book: RuleBook) -> Rules:
        """Rules with every cap counted alone, so that no shared counter can hide an error."""
        return Rules(book, dict(self._born), self._default_zone, together=False)
