"""Counters as people read them: used, limit, and when it changes."""

from __future__ import annotations

from penstock.limits.books import Account
from penstock.limits.counter import Counter
from penstock.limits.rules import SEPARATOR, CapRule, Rules
from penstock.model.decision import CounterFigure
from penstock.model.policy import Cap, Scope


def figures(rules: Rules, account: Account, key: str, now: int) -> list[CounterFigure]:
    """Every cap that counts for this key; those by key alone also when they count nothing."""
    found = []
    for name, counter in account.items():
        born, *parts = name.split(SEPARATOR)
        policy_id = rules.names.get(born)
        policy = None if policy_id is None else rules.book.policies.get(policy_id)
        if policy_id is not None and isinstance(policy, Cap):
            values = dict(part.split("=", 1) for part in parts)
            figure = _figure(rules.cap(policy_id, policy, values), counter, key, now)
            if figure.used or figure.resets is not None:
                found.append(figure)
    shown = {figure.policy for figure in found}
    for policy_id, policy in rules.book.policies.items():
        if isinstance(policy, Cap) and policy.scope == (Scope.KEY,) and policy_id not in shown:
            found.append(_figure(rules.cap(policy_id, policy, {}), Counter(), key, now))
    return sorted(found, key=lambda figure: (figure.policy, sorted(figure.scope.items())))


def _figure(cap: CapRule, counter: Counter, key: str, now: int) -> CounterFigure:
    return CounterFigure(
        policy=cap.id,
        scope={"key": key, **cap.values},
        used=cap.limit.used(counter, now),
        limit=cap.limit.limit or None,
        resets=cap.limit.resets(counter, now),
    )
