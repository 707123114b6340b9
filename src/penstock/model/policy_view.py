"""Policies and decisions as shown to callers: HTTP, clients and `--json`."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from penstock.model.decision import CounterFigure, Decision, Question, Reason, RuleResult
from penstock.model.draft import check_labels, is_id, is_key
from penstock.model.errors import InvalidMessage
from penstock.model.message import DEFAULT_ROUTE, Labels
from penstock.model.policy import Policy, Suppression, policy_from
from penstock.model.times import format_moment, parse_moment
from penstock.model.verdict import Verdict
from penstock.model.wire import read_json

MAX_QUESTIONS = 1_000

Written: TypeAlias = dict[str, Any]  # a policy in the words of its JSON


class Listed(msgspec.Struct, frozen=True):
    items: list[Written]
    version: int
    """Increases with every change of policies or suppressions."""
    next: None = None


class Dropped(msgspec.Struct, frozen=True):
    id: str


class DecisionIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hypothetical message to decide about."""

    id: str | None = None
    route: str = DEFAULT_ROUTE
    key: str | None = None
    labels: Labels | None = None
    expires: str | None = None


class RuleOut(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    verdict: Verdict
    until: str | None
    detail: str
    shadow: bool


class CounterOut(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    scope: dict[str, str]
    used: int
    limit: int | None
    resets: str | None


class DecisionOut(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that would be made now."""

    verdict: Verdict
    until: str | None
    reason: Reason | None
    rules: list[RuleOut]
    counters: list[CounterOut]


class CountersOut(msgspec.Struct, frozen=True):
    key: str
    items: list[CounterOut]
    next: None = None


_one = msgspec.json.Decoder(DecisionIn)
_many = msgspec.json.Decoder(list[DecisionIn])


def policy_out(policy_id: str, policy: Policy) -> Written:
    return {"id": policy_id, **msgspec.to_builtins(policy)}


def suppression_out(list_id: str, suppression: Suppression, *, keys: bool = True) -> Written:
    written = {"id": list_id, "legal": suppression.legal, **msgspec.to_builtins(suppression)}
    if keys:
        written.setdefault("keys", [])
    else:
        written.pop("keys", None)
    return written


def decode_questions(body: bytes, now: int) -> tuple[list[Question], bool]:
    """(the questions, whether they came as an array)."""
    many = body.lstrip()[:1] == b"["
    asked = read_json(_many, body) if many else [read_json(_one, body)]
    if len(asked) > MAX_QUESTIONS:
        raise InvalidMessage("body", f"has more than {MAX_QUESTIONS:,} messages")
    return [question_of(item, now) for item in asked], many


def question_of(asked: DecisionIn, now: int) -> Question:
    if asked.id is not None and not is_id(asked.id):
        raise InvalidMessage("id", "must be 1-200 printable ASCII characters")
    key = asked.key if asked.key is not None else asked.id
    if key is None or not is_key(key):
        raise InvalidMessage("key", "must be 1-512 printable characters")
    if asked.labels is not None:
        check_labels(asked.labels)
    return Question(
        id=asked.id or "",
        route=asked.route,
        key=key,
        due=now,
        expires=None if asked.expires is None else parse_moment(asked.expires, "expires"),
        labels=asked.labels,
    )


def decision_out(decision: Decision, counters: list[CounterFigure]) -> DecisionOut:
    return DecisionOut(
        verdict=decision.verdict,
        until=_text(decision.until),
        reason=decision.reason,
        rules=[
            RuleOut(
                policy=rule.policy,
                verdict=rule.verdict,
                until=_text(rule.until),
                detail=rule.detail,
                shadow=rule.shadow,
            )
            for rule in decision.rules
        ],
        counters=[counter_out(figure) for figure in counters],
    )


def counter_out(figure: CounterFigure) -> CounterOut:
    return CounterOut(
        policy=figure.policy,
        scope=figure.scope,
        used=figure.used,
        limit=figure.limit,
        resets=_text(figure.resets),
    )


def policies_of(listed: bytes) -> dict[str, Policy]:
    """Decode the answer of GET /v1/policies."""
    items = msgspec.json.decode(listed, type=_Policies).items
    return {str(item.pop("id")): policy_from(item) for item in items}


def suppressions_of(listed: bytes) -> dict[str, Suppression]:
    """Decode the answer of GET /v1/suppressions."""
    items = msgspec.json.decode(listed, type=_Policies).items
    return {str(item.pop("id")): msgspec.convert(item, Suppression) for item in items}


def suppression_of(shown: bytes) -> Suppression:
    item = msgspec.json.decode(shown, type=dict[str, object])
    item.pop("id", None)
    return msgspec.convert(item, Suppression)


def decision_of(shown: DecisionOut) -> Decision:
    """The Decision that a client returns, from its JSON form."""
    return Decision(
        verdict=shown.verdict,
        until=_millis(shown.until),
        reason=shown.reason,
        rules=tuple(
            RuleResult(
                policy=rule.policy,
                verdict=rule.verdict,
                until=_millis(rule.until),
                detail=rule.detail,
                shadow=rule.shadow,
            )
            for rule in shown.rules
        ),
    )


def counters_of(shown: CountersOut) -> list[CounterFigure]:
    return [
        CounterFigure(
            policy=item.policy,
            scope=item.scope,
            used=item.used,
            limit=item.limit,
            resets=_millis(item.resets),
        )
        for item in shown.items
    ]


class _Policies(msgspec.Struct):
    items: list[Written]


def _millis(text: str | None) -> int | None:
    return None if text is None else parse_moment(text)


def _text(moment: int | None) -> str | None:
    return None if moment is None else format_moment(moment)
