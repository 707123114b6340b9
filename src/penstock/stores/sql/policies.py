"""Policies, suppressions and counters: a whole batch is one transaction (policies.sql)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.limits.books import Needs, account_of
from penstock.limits.bulk import (
    conclude_batch,
    count_batch,
    decide_batch,
    explain_batch,
    room_on,
)
from penstock.limits.counter import reserved_until
from penstock.limits.figures import figures
from penstock.limits.rules import Rules
from penstock.model.decision import Conclusion, CounterFigure, Decision, PaceAllowance, Subject
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.model.zone import DEFAULT_ZONE
from penstock.stores.sql.ledger import Ledger, load_paces, places_of
from penstock.stores.sql.tx import Runner, Tx

_encode = msgspec.json.Encoder().encode
_policy = msgspec.json.Decoder(Policy)
_suppression = msgspec.json.Decoder(Suppression)


class SqlPolicies:
    """Policies, suppressions and counters beside the messages, in the same transactions."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._current = CurrentRules(DEFAULT_ZONE)
        self._ledger = Ledger()

    def use_zone(self, zone: str) -> None:
        self._current = CurrentRules(zone)

    async def book(self) -> RuleBook:
        return await self._runner.submit(lambda tx: self._current.get(tx).book, writes=False)

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        return await self._runner.submit(lambda tx: put_policy(tx, policy_id, policy))

    async def drop_policy(self, policy_id: str) -> bool:
        return await self._runner.submit(lambda tx: drop_policy(tx, policy_id))

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        return await self._runner.submit(lambda tx: put_suppression(tx, list_id, suppression))

    async def drop_suppression(self, list_id: str) -> bool:
        return await self._runner.submit(lambda tx: drop_suppression(tx, list_id))

    async def suppression(self, list_id: str) -> Suppression | None:
        return await self._runner.submit(lambda tx: get_suppression(tx, list_id), writes=False)

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        return await self._runner.submit(lambda tx: suppress(tx, list_id, add, remove))

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        def work(tx: Tx) -> list[Decision]:
            rules = self._current.get(tx)
            needs = Needs(rules, subjects)
            books = self._ledger.load(tx, needs)
            decisions = decide_batch(rules, subjects, now, hold, books, needs)
            until = reserved_until(now + hold)
            self._ledger.decided(tx, places_of(subjects), books, rules, now, until)
            return decisions

        return await self._runner.submit(work)

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        def work(tx: Tx) -> None:
            rules = self._current.get(tx)
            needs = Needs(rules, [conclusion.subject for conclusion in conclusions])
            books = self._ledger.load(tx, needs)
            conclude_batch(rules, conclusions, now, books, needs)
            self._ledger.concluded(tx, self._ledger.ended_by(conclusions), books, rules, now)

        await self._runner.submit(work)

    def count_within(self, tx: Tx, sent: Sequence[Subject], now: int) -> None:
        """Count these sent messages within a transaction that writes."""
        rules = self._current.get(tx)
        needs = Needs(rules, sent)
        books = self._ledger.load(tx, needs)
        count_batch(rules, sent, now, books, needs)
        self._ledger.concluded(tx, places_of(sent), books, rules, now)

    def forget_within(self, tx: Tx, now: int, limit: int) -> None:
        """Delete outdated counters within a transaction that writes."""
        self._ledger.forget(tx, now, limit)

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        def work(tx: Tx) -> list[Decision]:
            rules = self._current.get(tx)
            books = self._ledger.load(tx, Needs(rules, subjects))
            return explain_batch(rules, subjects, now, books)

        return await self._runner.submit(work, writes=False)

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        def work(tx: Tx) -> list[CounterFigure]:
            rules, name = self._current.get(tx), account_of(key)
            account = self._ledger.accounts(tx, [name]).get(name, {})
            return figures(rules, account, key, now)

        return await self._runner.submit(work, writes=False)

    async def forget(self, key: str, now: int) -> int:
        del now
        return await self._runner.submit(lambda tx: self._ledger.drop(tx, account_of(key)))

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        def work(tx: Tx) -> PaceAllowance | None:
            rules = self._current.get(tx)
            paces = rules.whole_paces(route)
            if not paces:
                return None
            books = load_paces(tx, [pace.state for pace in paces])
            return room_on(rules, route, now, books)

        return await self._runner.look(work)


class CurrentRules:
    """The rules of the version that the transaction sees; read again only when it is another."""

    def __init__(self, default_zone: str) -> None:
        self._default_zone = default_zone
        self._rules = Rules(RuleBook(), {}, default_zone)

    def get(self, tx: Tx) -> Rules:
        version = _version(tx)
        if version != self._rules.version:
            self._rules = _read(tx, version, self._default_zone)
        return self._rules


def put_policy(tx: Tx, policy_id: str, policy: Policy) -> int:
    body = _encode(policy).decode()
    for known, _, written in tx.query("policies"):
        if known == policy_id and written == body:
            return _version(tx)
    version = _next_version(tx)
    tx.execute("put_policy", (policy_id, version, body))
    return version


def drop_policy(tx: Tx, policy_id: str) -> bool:
    for known, born, _ in tx.query("policies"):
        if known == policy_id:
            tx.execute("drop_policy", (policy_id,))
            tx.execute("drop_pace", (str(born),))
            _next_version(tx)
            return True
    return False


def put_suppression(tx: Tx, list_id: str, suppression: Suppression) -> int:
    kept = msgspec.structs.replace(suppression, keys=())
    tx.execute("put_suppression", (list_id, _encode(kept).decode()))
    tx.execute("drop_suppressed", (list_id,))
    _add(tx, list_id, suppression.keys)
    return _next_version(tx)


def drop_suppression(tx: Tx, list_id: str) -> bool:
    if tx.one("has_suppression", (list_id,)) is None:
        return False
    tx.execute("drop_suppression", (list_id,))
    tx.execute("drop_suppressed", (list_id,))
    _next_version(tx)
    return True


def get_suppression(tx: Tx, list_id: str) -> Suppression | None:
    for known, body in tx.query("suppressions"):
        if known == list_id:
            keys = tx.query("suppressed_on", (list_id,))
            return msgspec.structs.replace(
                _suppression.decode(body), keys=tuple(key for (key,) in keys)
            )
    return None


def suppress(tx: Tx, list_id: str, add: Sequence[str], remove: Sequence[str]) -> bool:
    if tx.one("has_suppression", (list_id,)) is None:
        return False
    _add(tx, list_id, add)
    gone = [(key, list_id) for key in remove]
    tx.many("unsuppress", gone)
    return True


def _add(tx: Tx, list_id: str, keys: Sequence[str]) -> None:
    tx.many("suppress", [(key, list_id) for key in keys])


def _version(tx: Tx) -> int:
    row = tx.one("rules_version")
    return 0 if row is None else int(row[0])


def _next_version(tx: Tx) -> int:
    (version,) = tx.one("next_number", ("policies",))
    return int(version)


def _read(tx: Tx, version: int, default_zone: str) -> Rules:
    policies: dict[str, Policy] = {}
    born: dict[str, int] = {}
    for policy_id, mark, body in tx.query("policies"):
        policies[policy_id] = _policy.decode(body)
        born[policy_id] = mark
    suppressions = {
        list_id: _suppression.decode(body) for list_id, body in tx.query("suppressions")
    }
    return Rules(RuleBook(version, policies, suppressions), born, default_zone)
