"""Decisions about messages with several keys: every key is decided, all or nothing.

Each key first reserves its own caps, one Share each. If any of them refuses, all give back their
reservations and the strictest answer is the message's. If all allow, the message itself is decided
by everything that keys share (paces, caps without a key), and a refusal there gives the
reservations of all keys back. A crash in between leaves reservations that deciding again finds by
their ids, or that expire.

For one caller a batch gives the answers its messages would get one by one: messages that share a
key are decided one after the other. Between two callers a cap is never exceeded; at worst one of
them waits for a reservation that the other then gives back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from penstock.flow.conclude import counted_as, keys_of, shares
from penstock.model.decision import (
    Conclusion,
    Decision,
    End,
    Question,
    Reason,
    Share,
    Subject,
)
from penstock.model.message import Message
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore


async def decide(
    store: PolicyStore, messages: Sequence[Message], now: int, hold: int
) -> list[Decision]:
    """One decision each, in order; ALLOW holds a reservation for every key of the message."""
    decisions: list[Decision] = []
    for wave in _waves(messages):
        decisions += await _decide_wave(store, wave, now, hold)
    return decisions


def _waves(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Neighbours, none of which has a key in common with another that has several keys."""
    wave: list[Message] = []
    seen: set[str] = set()
    some_have_several = False
    for message in messages:
        keys = keys_of(message)
        has_several = len(keys) > 1
        if (some_have_several or has_several) and not seen.isdisjoint(keys):
            yield wave
            wave, seen, some_have_several = [], set(), False
        wave.append(message)
        seen.update(keys)
        some_have_several = some_have_several or has_several
    if wave:
        yield wave


async def _decide_wave(
    store: PolicyStore, messages: Sequence[Message], now: int, hold: int
) -> list[Decision]:
    parts = [shares(message) if len(keys_of(message)) > 1 else [] for message in messages]

    async def ask(subjects: Sequence[Subject]) -> Iterator[Decision]:
        return iter(await store.decide(subjects, now, hold) if subjects else ())

    answers = await ask([one for part in parts for one in part])
    of_keys = [[next(answers) for _ in part] for part in parts]
    refusals = [_strictest(part, said) for part, said in zip(parts, of_keys, strict=True)]
    known = [counted_as(message) for message in messages]
    whole = await ask(
        [one for one, refusal in zip(known, refusals, strict=True) if refusal is None]
    )
    decisions: list[Decision] = []
    released: list[Subject] = []
    for message, part, said, refusal in zip(known, parts, of_keys, refusals, strict=True):
        decision = refusal if refusal is not None else next(whole)
        if decision.verdict is Verdict.ALLOW:
            decision = _with_shadows(decision, said)
        elif part:
            released += [message, *part[1:]]
        decisions.append(decision)
    if released:
        ends = [Conclusion(one, End.RELEASE, now + hold) for one in released]
        await store.conclude(ends, now)
    return decisions


async def explain(store: PolicyStore, questions: Sequence[Question], now: int) -> list[Decision]:
    """Explain the decision for each question now, on its own. Writes nothing."""
    decisions = await store.explain(questions, now)
    for place, question in enumerate(questions):
        others = _others_of(question)
        if others:
            said = await store.explain(others, now)
            refusal = _strictest([question, *others], [decisions[place], *said])
            decisions[place] = refusal or decisions[place]
    return decisions


def _others_of(question: Question) -> list[Share]:
    labels = question.labels
    keys = () if labels is None else dict.fromkeys(labels.keys)
    return [
        Share("", question.route, key, question.due, question.expires, labels, question.decided)
        for key in keys
        if key != question.key
    ]


def _strictest(subjects: Sequence[Subject], decisions: Sequence[Decision]) -> Decision | None:
    """The answer that binds, with the key it is about: BLOCK before the latest DEFER; None: all
    allow."""
    refused = [
        (subject, decision)
        for subject, decision in zip(subjects, decisions, strict=True)
        if decision.verdict is not Verdict.ALLOW
    ]
    if not refused:
        return None
    subject, decision = max(refused, key=lambda one: _strictness(one[1]))
    if decision.reason is None or subject is subjects[0]:
        return decision
    reason = Reason(decision.reason.policy, f"{decision.reason.detail}, of {subject.key}")
    return replace(decision, key=subject.key, reason=reason)


def _strictness(decision: Decision) -> tuple[bool, int]:
    return decision.verdict is Verdict.BLOCK, decision.until or 0


def _with_shadows(decision: Decision, of_keys: Sequence[Decision]) -> Decision:
    """Add the shadow rules' answers about the further keys to the decision."""
    said = tuple(rule for one in of_keys[1:] for rule in one.rules)
    return replace(decision, rules=(*decision.rules, *said)) if said else decision
