"""The store of policies as the flow sees it: a whole batch is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.limits.batch import (
    conclude_batch,
    count_batch,
    decide_batch,
    explain_batch,
    room_on,
)
from penstock.limits.books import Books, Needs, account_of
from penstock.limits.figures import figures
from penstock.limits.rules import Rules
from penstock.model.decision import Conclusion, CounterFigure, Decision, Room, Subject
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.model.zone import DEFAULT_ZONE
from penstock.stores.sqlite import ledger, rulebook
from penstock.stores.sqlite.group import GroupCommit
from penstock.stores.sqlite.session import Session


class SqlitePolicies:
    """Policies, suppressions and counters beside the messages, in the same transactions."""

    def __init__(self, group: GroupCommit) -> None:
        self._group = group
        self._current = rulebook.CurrentRules(DEFAULT_ZONE)
        self._ledger = ledger.Ledger()

    def use_zone(self, zone: str) -> None:
        self._current = rulebook.CurrentRules(zone)

    async def book(self) -> RuleBook:
        return await self._group.submit(lambda s: self._current.get(s).book, writes=False)

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        return await self._group.submit(lambda s: rulebook.put_policy(s, policy_id, policy))

    async def drop_policy(self, policy_id: str) -> bool:
        return await self._group.submit(lambda s: rulebook.drop_policy(s, policy_id))

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        return await self._group.submit(lambda s: rulebook.put_suppression(s, list_id, suppression))

    async def drop_suppression(self, list_id: str) -> bool:
        return await self._group.submit(lambda s: rulebook.drop_suppression(s, list_id))

    async def suppression(self, list_id: str) -> Suppression | None:
        return await self._group.submit(
            lambda s: rulebook.get_suppression(s, list_id), writes=False
        )

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        return await self._group.submit(lambda s: rulebook.suppress(s, list_id, add, remove))

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        def work(session: Session) -> list[Decision]:
            rules = self._current.get(session)
            needs = Needs(rules, subjects)
            books = self._ledger.load(session, needs)
            decisions = decide_batch(rules, subjects, now, hold, books, needs)
            ids = [subject.id for subject in subjects]
            self._ledger.decided(session, ids, books, rules, now, now + hold)
            return decisions

        return await self._group.submit(work)

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        def end(rules: Rules, books: Books, needs: Needs) -> None:
            conclude_batch(rules, conclusions, now, books, needs)

        subjects = [conclusion.subject for conclusion in conclusions]
        await self._group.submit(lambda s: self._end_within(s, subjects, now, end))

    def count_within(self, session: Session, sent: Sequence[Subject], now: int) -> None:
        """As a part of a transaction that writes: all of these were sent."""

        def end(rules: Rules, books: Books, needs: Needs) -> None:
            count_batch(rules, sent, now, books, needs)

        self._end_within(session, sent, now, end)

    def _end_within(
        self,
        session: Session,
        subjects: Sequence[Subject],
        now: int,
        end: Callable[[Rules, Books, Needs], None],
    ) -> None:
        rules = self._current.get(session)
        needs = Needs(rules, subjects)
        books = self._ledger.load(session, needs)
        end(rules, books, needs)
        self._ledger.concluded(session, [one.id for one in subjects], books, rules, now)

    def forget_within(self, session: Session, now: int, limit: int) -> None:
        """As a part of a transaction that writes: drop what cannot matter any more."""
        self._ledger.forget(session, now, limit)

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        def work(session: Session) -> list[Decision]:
            rules = self._current.get(session)
            books = self._ledger.load(session, Needs(rules, subjects))
            return explain_batch(rules, subjects, now, books)

        return await self._group.submit(work, writes=False)

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        def work(session: Session) -> list[CounterFigure]:
            rules, name = self._current.get(session), account_of(key)
            account = self._ledger.accounts(session, [name]).get(name, {})
            return figures(rules, account, key, now)

        return await self._group.submit(work, writes=False)

    async def forget(self, key: str, now: int) -> int:
        del now
        return await self._group.submit(lambda s: self._ledger.drop(s, account_of(key)))

    async def room(self, route: str, now: int) -> Room | None:
        def work(session: Session) -> Room | None:
            rules = self._current.get(session)
            paces = rules.whole_paces(route)
            if not paces:
                return None
            books = ledger.load_paces(session, [pace.state for pace in paces])
            return room_on(rules, route, now, books)

        return await self._group.look(work)
