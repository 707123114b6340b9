"""Decide: one message against every rule; evaluated first, then written all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple, TypeAlias
from zlib import crc32

from msgspec.structs import replace

from penstock.limits.books import Books, open_counters
from penstock.limits.counter import Counter, holds, is_ours, keep, release
from penstock.limits.rules import AnyRule, CapRule, PaceRule, Plan, QuietRule, Rules
from penstock.limits.wall import wall_text
from penstock.model.decision import ALLOWED, Conclusion, Decision, End, Reason, RuleResult, Subject
from penstock.model.times import format_duration, format_moment
from penstock.model.verdict import Verdict

EXPIRES = "expires"
"""Stands for a policy's id when the message's own deadline decides."""
MAX_STEPS = 60
"""Quiet windows passed over in search of a legal moment before it counts as none."""


class Finding(NamedTuple):
    """A rule that does not let the message go before `until`."""

    rule: AnyRule
    until: int
    used: int = 0
    """Of a cap: what counts now."""


Findings: TypeAlias = list[Finding]
_until = attrgetter("until")


def decide(rules: Rules, subject: Subject, now: int, hold: int, books: Books) -> Decision:
    """ALLOW reserves a unit of every cap until `hold`; any other verdict leaves the counters as if
    the message had never come, but for the slot that a pace gave it.
    """
    plan = rules.plan_of(subject)
    refused = _refused_outright(plan, subject, now, books)
    if refused is not None:
        _let_go(plan, subject, hold, books)
        return refused
    findings = _findings(plan, subject, now, books)
    decision = judge(plan, subject, findings)
    if decision.verdict is Verdict.ALLOW:
        _reserve(plan, subject, now, hold, books, findings)
    else:
        _let_go(plan, subject, hold, books)
        _give_slots(findings, decision, books)
    return decision


def judge(plan: Plan, subject: Subject, findings: Findings) -> Decision:
    """The decision that follows from the rules' findings, however they were found."""
    if not findings:
        return plan.allowed
    if all(finding.rule.shadow for finding in findings):
        return replace(plan.allowed, rules=_results(findings))
    return _refusal(plan, subject, findings)


def explain(rules: Rules, subject: Subject, now: int, books: Books) -> Decision:
    """The decision that would be made now, with every rule's result; changes nothing."""
    plan = rules.plan_of(subject)
    refused = _refused_outright(plan, subject, now, books)
    findings = _findings(plan, subject, now, books)

    def used(cap: CapRule) -> int:
        return _used(cap, subject, now, books)

    return tell(plan, subject, now, findings, refused, used)


def tell(
    plan: Plan,
    subject: Subject,
    now: int,
    findings: Findings,
    refused: Decision | None,
    used: Callable[[CapRule], int],
) -> Decision:
    """The decision with every rule's result; `used` returns what counts in a cap now."""
    decision = judge(plan, subject, findings) if refused is None else refused
    if decision.verdict is Verdict.ALLOW:
        decision = ALLOWED  # the results of shadows are among the others
    said = {result.policy for result in decision.rules}
    # For a message refused outright the other lists are not read.
    lists = plan.suppressions if refused is None else ()
    clear = (_allows(list_id, "not on the list") for list_id in lists)
    return Decision(
        verdict=decision.verdict,
        until=decision.until,
        reason=decision.reason,
        rules=(*decision.rules, *clear, *_others(plan, now, findings, said, used)),
    )


def conclude(rules: Rules, conclusion: Conclusion, now: int, books: Books) -> None:
    """End the reservations of one message."""
    subject = conclusion.subject
    plan = rules.plan_of(subject)
    match conclusion.end:
        case End.COMMIT:
            _count(plan, subject, now, books)
        case End.RELEASE:
            for counter in _open_held(plan, subject, books):
                if is_ended_by(conclusion, counter.held[subject.id]):
                    release(counter, subject.id)
        case End.KEEP:
            for counter in _open_held(plan, subject, books):
                # An expired reservation may be another message's by now.
                if counter.held[subject.id] > now:
                    keep(counter, subject.id, conclusion.until)


def is_ended_by(conclusion: Conclusion, held_until: int) -> bool:
    """Whether a reservation held until that moment is one the conclusion ends."""
    until = conclusion.until
    return conclusion.end is not End.RELEASE or not until or is_ours(held_until, until)


def _count(plan: Plan, subject: Subject, now: int, books: Books) -> None:
    for group in plan.counter_groups:
        if _counts(group.caps[0], subject, books):
            for counter in open_counters(books.open_own(subject.key), group.names):
                group.limit.count(counter, subject.id, now)
    for cap in plan.shared:
        if _counts(cap, subject, books):
            cap.limit.count(books.open_counter(cap, subject.key), subject.id, now)


def _counts(cap: CapRule, subject: Subject, books: Books) -> bool:
    """True if the cap counts it: a shadow counts only messages that it would have allowed."""
    counter = books.counter(cap, subject.key) if cap.shadow else None
    return not cap.shadow or (counter is not None and subject.id in counter.held)


def _refused_outright(plan: Plan, subject: Subject, now: int, books: Books) -> Decision | None:
    if (late := expired(subject, now)) is not None:
        return late
    if plan.suppressions:
        for list_id in books.suppressed.get(subject.key, ()):
            if list_id in plan.suppressions:
                return suppressed(plan, list_id)
    return None


def expired(subject: Subject, now: int) -> Decision | None:
    if subject.expires is None or subject.expires > now:
        return None
    return _blocked(EXPIRES, f"expired at {format_moment(subject.expires)}")


def suppressed(plan: Plan, list_id: str) -> Decision:
    legal = " by law" if plan.suppressions[list_id] else ""
    return _blocked(list_id, f"suppressed{legal}")


def _blocked(policy: str, detail: str) -> Decision:
    result = RuleResult(policy=policy, verdict=Verdict.BLOCK, detail=detail)
    return Decision(verdict=Verdict.BLOCK, reason=Reason(policy, detail), rules=(result,))


def _findings(plan: Plan, subject: Subject, now: int, books: Books) -> Findings:
    """The rules that do not let it go now, in the order in which they give the reason."""
    found = quiet_findings(plan, now)
    if plan.caps:
        me = subject.id
        own = books.own(subject.key) if plan.keyed else None
        for cap in plan.caps:
            account = own if cap.account is None else books.accounts.get(cap.account)
            counter = None if account is None else account.get(cap.counter)
            if counter is not None and (until := cap.limit.free_at(counter, now, me)):
                found.append(Finding(cap, until, cap.limit.used(counter, now, me)))
    for pace in plan.paces:
        has_slot = pace.whole or waits_for(pace, subject)
        if until := pace.rate.free_at(books.pace(pace), now, has_slot=has_slot):
            found.append(Finding(pace, until))
    return found


def quiet_findings(plan: Plan, now: int) -> Findings:
    ends = [(quiet, quiet.hours.ends(now)) for quiet in plan.quiets]
    return [Finding(quiet, until) for quiet, until in ends if until]


def waits_for(pace: PaceRule, subject: Subject) -> bool:
    """Did it wait for a slot of this pace, and was left alone since?"""
    decided = subject.decided
    return decided is not None and decided.policy == pace.id and decided.until == subject.due


def _reserve(
    plan: Plan, subject: Subject, now: int, hold: int, books: Books, shadowed: Findings
) -> None:
    """Reserve every cap; a shadow rule only what it would have allowed, to show its effect."""
    refusing = {id(finding.rule) for finding in shadowed} if shadowed else ()
    me = subject.id
    for group in plan.counter_groups:
        if not refusing or id(group.caps[0]) not in refusing:  # a shadow stands alone
            for counter in open_counters(books.open_own(subject.key), group.names):
                group.limit.hold(counter, me, now, hold)
    for cap in plan.shared:
        if not refusing or id(cap) not in refusing:
            cap.limit.hold(books.open_counter(cap, subject.key), me, now, hold)
    for pace in plan.all_paces():
        if not refusing or id(pace) not in refusing:
            pace.rate.go(books.open_pace(pace), now)


def _let_go(plan: Plan, subject: Subject, until: int, books: Books) -> None:
    """Release the reservations that this message has, but for those of a later decision."""
    for counter in _open_held(plan, subject, books):
        if is_ours(counter.held[subject.id], until):
            release(counter, subject.id)


def _open_held(plan: Plan, subject: Subject, books: Books) -> Iterator[Counter]:
    """The counters in which it holds a place."""
    own = books.own(subject.key) if plan.keyed else None
    if own:
        for group in plan.counter_groups:
            names = tuple([name for name in group.names if holds(own.get(name), subject.id)])
            if names:
                yield from open_counters(books.open_own(subject.key), names)
    for cap in plan.shared:
        counter = books.counter(cap, subject.key)
        if counter is not None and holds(counter, subject.id):
            yield books.open_counter(cap, subject.key)


def _refusal(plan: Plan, subject: Subject, findings: Findings) -> Decision:
    results = _results(findings)
    for finding, result in zip(findings, results, strict=True):
        if finding.rule.blocks and not finding.rule.shadow:
            reason = Reason(result.policy, result.detail)
            return Decision(verdict=Verdict.BLOCK, reason=reason, rules=results)
    acting = [finding for finding in findings if not finding.rule.shadow]
    binding, passed = _first_legal(plan, max(acting, key=_until))
    if binding in findings:
        detail = results[findings.index(binding)].detail
    else:  # a quiet window between now and the moment of the others
        results = (*results, _result(binding))
        detail = results[-1].detail
    deadline = deadline_of(subject, [*acting, binding])
    if not passed:
        return _too_late(binding, f"{detail}; there is no legal moment ahead", results)
    if deadline is not None and binding.until >= deadline[0]:
        late = f"{detail}; would go out at {format_moment(binding.until)}, {deadline[1]}"
        return _too_late(binding, late, results)
    until = spread(plan, binding, subject, None if deadline is None else deadline[0])
    reason = Reason(binding.rule.id, detail)
    return Decision(verdict=Verdict.DEFER, until=until, reason=reason, rules=results)


def _too_late(binding: Finding, detail: str, results: tuple[RuleResult, ...]) -> Decision:
    reason = Reason(binding.rule.id, f"deadline: {detail}")
    return Decision(verdict=Verdict.BLOCK, reason=reason, rules=results)


def _first_legal(plan: Plan, latest: Finding) -> tuple[Finding, bool]:
    """The first moment from there on that no quiet window forbids, and the last rule waited for.

    Caps and paces only wait for a moment, which every later one is past: only quiet windows may
    come in between. False: none was found.
    """
    quiets = [quiet for quiet in plan.quiets if not quiet.shadow]
    for _ in range(MAX_STEPS):
        for quiet in quiets:
            if end := quiet.hours.ends(latest.until):
                latest = Finding(quiet, end)
                break
        else:
            return latest, True
    return latest, False


def deadline_of(subject: Subject, findings: Findings) -> tuple[int, str] | None:
    """The first moment that is too late, and why."""
    first: tuple[int, str] | None = None
    if subject.expires is not None:
        first = subject.expires, f"but expires at {format_moment(subject.expires)}"
    since = waiting_since(subject)
    for finding in findings:
        wait = finding.rule.max_defer
        if wait is not None and (first is None or since + wait + 1 < first[0]):
            first = since + wait + 1, f"past max_defer {format_duration(wait)}"
    return first


def waiting_since(subject: Subject) -> int:
    """The due it had before it was first deferred."""
    decided = subject.decided
    if decided is not None and decided.until == subject.due and decided.since is not None:
        return decided.since
    return subject.due


def spread(plan: Plan, binding: Finding, subject: Subject, deadline: int | None) -> int:
    """Spread messages deferred by a quiet window over time: each gets a moment of its own."""
    rule, until = binding.rule, binding.until
    if not isinstance(rule, QuietRule) or not subject.id:
        return until
    begins = [quiet.hours.begins(until) for quiet in plan.quiets if not quiet.shadow]
    width = min(rule.spread, min(begins) - until)
    if deadline is not None:
        width = min(width, deadline - until)
    return until + crc32(subject.id.encode()) % width if width > 1 else until


def _give_slots(findings: Findings, decision: Decision, books: Books) -> None:
    """Give a slot only of the pace that is the decision's reason: its name is with the message when
    it returns, and a slot of another pace would delay the message it was given to.
    """
    if decision.verdict is Verdict.DEFER and decision.reason is not None:
        for rule, _, _ in findings:
            if isinstance(rule, PaceRule) and rule.id == decision.reason.policy:
                rule.rate.give_slot(books.open_pace(rule))


def _results(findings: Findings) -> tuple[RuleResult, ...]:
    return tuple(map(_result, findings))


def _result(finding: Finding) -> RuleResult:
    rule = finding.rule
    return RuleResult(
        policy=rule.id,
        verdict=Verdict.BLOCK if rule.blocks else Verdict.DEFER,
        until=None if rule.blocks else finding.until,
        detail=_detail(finding),
        shadow=rule.shadow,
    )


def _detail(finding: Finding) -> str:
    rule, until, used = finding
    if isinstance(rule, QuietRule):
        return f"quiet until {wall_text(until, rule.hours.zone)} {rule.zone}"
    if isinstance(rule, CapRule):
        return _cap_text(rule, used)
    return f"paced at {rule.text}"


def _cap_text(cap: CapRule, used: int) -> str:
    per = ", ".join(f"{word} {value or '(none)'}" for word, value in cap.values.items())
    return cap.limit.text(used) + (f" for {per}" if per else "")


def _used(cap: CapRule, subject: Subject, now: int, books: Books) -> int:
    counter = books.counter(cap, subject.key)
    return 0 if counter is None else cap.limit.used(counter, now, subject.id)


def _others(
    plan: Plan, now: int, findings: Findings, said: set[str], used: Callable[[CapRule], int]
) -> list[RuleResult]:
    """The results of rules that are not part of the decision: mostly that it is allowed."""
    found = {id(finding.rule): finding for finding in findings}
    rules: list[AnyRule] = [*plan.quiets, *plan.caps, *plan.paces]
    results = []
    for rule in rules:
        finding = found.get(id(rule))
        if rule.id in said:
            continue
        if finding is not None:
            results.append(_result(finding))
        else:
            detail = _allowing(rule, now, used)
            results.append(_allows(rule.id, detail, shadow=rule.shadow))
    results += [_allows(policy_id, "bypassed") for policy_id in plan.bypassed]
    return results


def _allowing(rule: AnyRule, now: int, used: Callable[[CapRule], int]) -> str:
    if isinstance(rule, QuietRule):
        begins = rule.hours.begins(now)
        return f"not quiet before {wall_text(begins, rule.hours.zone)} {rule.zone}"
    if isinstance(rule, CapRule):
        return _cap_text(rule, used(rule))
    return f"room at {rule.text}"


def _allows(policy_id: str, detail: str, *, shadow: bool = False) -> RuleResult:
    return RuleResult(policy=policy_id, verdict=Verdict.ALLOW, detail=detail, shadow=shadow)
