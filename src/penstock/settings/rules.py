"""Policies, suppression lists and recurring rules in settings: the JSON of the API as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from penstock.model.errors import InvalidMessage, PenstockError, UnknownRoute
from penstock.model.message import MAX_PAYLOAD
from penstock.model.policy import (
    Policy,
    Suppression,
    check_policy_id,
    policy_from,
    suppression_from,
)
from penstock.model.recurrence import Rule, check_rule, check_rule_id, problems_in, read_rule
from penstock.model.route import is_route_name

Written: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Name → the content of its table."""


def policies_from(written: Written) -> dict[str, Policy]:
    return {name: policy_from(table) for name, table in written.items()}


def suppressions_from(written: Written) -> dict[str, Suppression]:
    return {name: suppression_from(table) for name, table in written.items()}


def recurring_from(written: Written, max_payload: int) -> dict[str, tuple[Rule, bool]]:
    """Rules by their ids, and whether each is managed."""
    read = {name: _recurring(table) for name, table in written.items()}
    return {
        name: (check_rule(rule, max_payload=max_payload), managed)
        for name, (rule, managed) in read.items()
    }


def _recurring(table: Mapping[str, Any]) -> tuple[Rule, bool]:
    managed = table.get("managed", False)
    if not isinstance(managed, bool):
        raise InvalidMessage("managed", "must be true or false")
    return read_rule({name: value for name, value in table.items() if name != "managed"}), managed


def recurring_problems(
    written: Written, routes: frozenset[str], max_payload: int = MAX_PAYLOAD
) -> list[str]:
    """The errors of recurring rules, each with its field."""
    return [
        f"recurring.{name}.{problem.message}"
        for name, table in written.items()
        for problem in _problems_of(name, table, routes, max_payload)
    ]


def _problems_of(
    name: str, table: Mapping[str, Any], routes: frozenset[str], max_payload: int
) -> Iterator[PenstockError]:
    try:
        check_rule_id(name)
        rule, _ = _recurring(table)
    except PenstockError as exc:
        yield exc
        return
    yield from problems_in(rule, max_payload=max_payload)
    if is_route_name(rule.route) and rule.route not in routes:
        yield UnknownRoute(rule.route, tuple(routes))


_SOUND: dict[str, dict[str, object]] = {
    "from": {"from": "00:17"},
    "to": {"to": "23:43"},
    "scope": {"scope": ["key"]},
    "rate": {"rate": "1/s"},
    "limit": {"limit": 1, "window": "1h"},
    "window": {"window": "1h"},
}
"""Valid values of fields that a policy needs, to replace a wrong one while others are checked."""


def _problems_of_id(name: str) -> Iterator[PenstockError]:
    try:
        check_policy_id(name)
    except PenstockError as exc:
        yield exc


def _each_problem(
    table: Mapping[str, Any], read: Callable[[Mapping[str, Any]], object]
) -> Iterator[PenstockError]:
    """Every wrong field once: reading ends at the first one, so each is replaced and read on."""
    tried: set[str] = set()
    while True:
        try:
            read(table)
        except PenstockError as exc:
            name = (exc.field or "").partition(".")[0]
            if name in tried:
                return
            yield exc
            tried.add(name)
            rest = {other: value for other, value in table.items() if other != name}
            table = {**_SOUND.get(name, {}), **rest}
        else:
            return


def rule_problems(policies: Written, suppressions: Written) -> list[str]:
    """The errors of policies and suppressions, each with its field."""
    problems = []
    for section, written, read in (
        ("policies", policies, policy_from),
        ("suppressions", suppressions, suppression_from),
    ):
        for name, table in written.items():
            found = [*_problems_of_id(name), *_each_problem(table, read)]
            problems += [f"{section}.{name}.{problem.message}" for problem in found]
    return problems
