"""Policies and suppression lists as settings write them: the JSON of the API as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from penstock.model.errors import PenstockError
from penstock.model.policy import (
    Policy,
    Suppression,
    check_policy_id,
    policy_from,
    suppression_from,
)

Written: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Name → what its table says."""


def policies_from(written: Written) -> dict[str, Policy]:
    return {name: policy_from(table) for name, table in written.items()}


def suppressions_from(written: Written) -> dict[str, Suppression]:
    return {name: suppression_from(table) for name, table in written.items()}


def rule_problems(policies: Written, suppressions: Written) -> list[str]:
    """What makes no sense, each with the field it is about."""
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
