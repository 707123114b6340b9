"""Policies, suppression lists and recurring rules in settings: the JSON of the API as tables."""

from __future__ import annotations

from collections.abc import Mapping
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
from penstock.model.recurrence import Rule, check_rule_id, rule_from

Written: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Name → the content of its table."""


def policies_from(written: Written) -> dict[str, Policy]:
    return {name: policy_from(table) for name, table in written.items()}


def suppressions_from(written: Written) -> dict[str, Suppression]:
    return {name: suppression_from(table) for name, table in written.items()}


def recurring_from(written: Written, max_payload: int) -> dict[str, tuple[Rule, bool]]:
    """Rules by their ids, and whether each is managed."""
    return {name: _recurring(table, max_payload) for name, table in written.items()}


def _recurring(table: Mapping[str, Any], max_payload: int = MAX_PAYLOAD) -> tuple[Rule, bool]:
    managed = table.get("managed", False)
    if not isinstance(managed, bool):
        raise InvalidMessage("managed", "must be true or false")
    rule = {name: value for name, value in table.items() if name != "managed"}
    return rule_from(rule, max_payload=max_payload), managed


def recurring_problems(
    written: Written, routes: frozenset[str], max_payload: int = MAX_PAYLOAD
) -> list[str]:
    """The errors of recurring rules, each with its field."""
    problems = []
    for name, table in written.items():
        try:
            check_rule_id(name)
            rule, _ = _recurring(table, max_payload)
            if rule.route not in routes:
                raise UnknownRoute(rule.route, tuple(routes))
        except PenstockError as exc:
            problems.append(f"recurring.{name}.{exc.message}")
    return problems


def rule_problems(policies: Written, suppressions: Written) -> list[str]:
    """The errors of policies and suppressions, each with its field."""
    problems = []
    for section, written, read in (
        ("policies", policies, policy_from),
        ("suppressions", suppressions, suppression_from),
    ):
        for name, table in written.items():
            try:
                check_policy_id(name)
                read(table)
            except PenstockError as exc:
                problems.append(f"{section}.{name}.{exc.message}")
    return problems
