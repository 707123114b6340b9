"""Converts a program's policies, suppression lists, questions and rooms to their values.

Apart from `asked`, so that a client that only schedules does not load any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from penstock.model.policy import (
    Policy,
    Suppression,
    check_policy,
    check_suppression,
    policy_from,
    suppression_from,
)
from penstock.model.policy_view import DecisionIn
from penstock.model.room import RoomDraft
from penstock.model.wire import read_value
from penstock.sdk.asked import delay_value, labels_value, moment_text

PolicyLike: TypeAlias = Policy | Mapping[str, Any]
SuppressionLike: TypeAlias = Suppression | Mapping[str, Any]


def policy_value(policy: PolicyLike) -> Policy:
    """A policy, given as one or as its JSON."""
    return policy_from(policy) if isinstance(policy, Mapping) else check_policy(policy)


def room_draft(fields: Mapping[str, Any]) -> RoomDraft:
    """The settings of a room, by the names of its JSON."""
    given = dict(fields)
    for name in ("claim_ttl", "session_ttl", "wait_grace"):
        if given.get(name) is not None:
            given[name] = delay_value(given[name], name)
    if given.get("opens_at") is not None:
        given["opens_at"] = moment_text(given["opens_at"], "opens_at")
    return read_value(given, RoomDraft)


def suppression_value(suppression: SuppressionLike) -> Suppression:
    """A suppression list, given as one or as its JSON."""
    if isinstance(suppression, Mapping):
        return suppression_from(suppression)
    return check_suppression(suppression)


def question(fields: Mapping[str, Any]) -> DecisionIn:
    """A message to explain the decision for."""
    given = dict(fields)
    if given.get("labels") is not None:
        given["labels"] = labels_value(given["labels"])
    if given.get("expires") is not None:
        given["expires"] = moment_text(given["expires"], "expires")
    return DecisionIn(**given)
