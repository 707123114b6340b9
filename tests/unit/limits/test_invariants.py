"""What must hold whatever the policies and the traffic are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from fractions import Fraction
from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.limits import engine
from penstock.limits.books import Books
from penstock.limits.counter import AHEAD_MS, is_ours, kept_until, reserved_until
from penstock.limits.window import Period, Rolling
from penstock.model.decision import Conclusion, Decision, End, Question
from penstock.model.message import Labels
from penstock.model.policy import Cap, Pace, Policy, Quiet, Scope, Suppression, parse_rate
from penstock.model.verdict import Verdict
from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing import policy_worlds as worlds

FEWER = settings(max_examples=50)
traffic: st.SearchStrategy[list[tuple[int, Question]]] = st.lists(
    st.tuples(worlds.waits, worlds.questions()), min_size=1, max_size=25
)


async def opened(policies: Mapping[str, Policy]) -> MemoryPolicies:
    store = MemoryPolicies()
    for policy_id, policy in policies.items():
        await store.put_policy(policy_id, policy)
    return store


def counters(books: Books, now: int = 0) -> bytes:
    """What counts, whatever the order in which it came; places that are over do not."""
    for account in books.accounts.values():
        for counter in account.values():
            for over in [me for me, end in counter.held.items() if abs(end) <= now]:
                del counter.held[over]
    accounts = {
        name: {
            counter: (value.times, value.counts, value.held, value.last)
            for counter, value in account.items()
        }
        for name, account in books.accounts.items()
    }
    return msgspec.msgpack.encode(accounts, order="sorted")


def alone(store: MemoryPolicies, question: Question, now: int) -> Decision:
    """Decided message by message, with no batch about it."""
    until = reserved_until(now + worlds.HOLD)
    return engine.decide(store._rules, question, now, until, store._loaded([question]))


async def decide(store: MemoryPolicies, question: Question, now: int) -> Decision:
    (decision,) = await store.decide([question], now, worlds.HOLD)
    return decision


@FEWER
@given(worlds.books, traffic, st.data())
async def test_no_window_ever_exceeds_its_limit(
    policies: dict[str, Policy], sequence: list[tuple[int, Question]], data: st.DataObject
) -> None:
    """Sends take their time: counted at the moment they are committed."""
    plain = {
        name: msgspec.structs.replace(p, bypass=(), shadow=False) for name, p in policies.items()
    }
    store = await opened(plain)
    now = worlds.START
    sent: dict[tuple[str, str], list[int]] = defaultdict(list)
    flying: list[Question] = []
    for number, (wait, asked) in enumerate(sequence):
        now += wait
        question = msgspec.structs.replace(
            worlds.at(asked, now), id=f"m{number}", labels=asked.labels
        )
        if bool(flying) and data.draw(st.booleans()):
            done = flying.pop(0)
            await store.conclude([Conclusion(done, End.COMMIT)], now)
            plan = store._rules.plan(done.route, done.labels)
            for cap in plan.caps:
                name = done.key if cap.account is None else ""
                sent[name, cap.counter].append(now)
                _check_windows(sent[name, cap.counter], cap.limit.window, cap.limit.limit)
                _check_gaps(sent[name, cap.counter], cap.limit.interval)
        (decision,) = await store.decide([question], now, 10**12)
        if decision.verdict is Verdict.ALLOW:
            flying.append(question)


def _check_windows(sends: list[int], window: Rolling | Period | None, limit: int) -> None:
    if window is None:
        return
    for moment in sends:
        assert sum(window.floor(moment) < other <= moment for other in sends) <= limit


def _check_gaps(sends: list[int], interval: int) -> None:
    assert all(later - earlier >= interval for earlier, later in pairwise(sends))


@FEWER
@given(worlds.books, traffic)
async def test_a_refusal_leaves_the_counters_unchanged(
    policies: dict[str, Policy], sequence: list[tuple[int, Question]]
) -> None:
    store = await opened(policies)
    now = worlds.START
    for number, (wait, asked) in enumerate(sequence):
        now += wait
        before = counters(store.books)
        nexts = {name: state.next for name, state in store.books.paces.items()}
        decision = await decide(store, msgspec.structs.replace(asked, id=f"m{number}"), now)
        if decision.verdict is not Verdict.ALLOW:
            assert counters(store.books) == before
            after = {name: state.next for name, state in store.books.paces.items()}
            assert {**after, **nexts} == after  # only cursors of slots move
            if decision.verdict is Verdict.BLOCK:
                assert decision.until is None


@FEWER
@given(worlds.books, st.lists(worlds.questions(), min_size=1, max_size=30), worlds.waits)
async def test_a_batch_is_the_same_as_one_by_one(
    policies: dict[str, Policy], batch: list[Question], wait: int
) -> None:
    together, apart = await opened(policies), await opened(policies)
    for now in (worlds.START, worlds.START + wait):
        one_by_one = [alone(apart, question, now) for question in batch]
        assert await together.decide(batch, now, worlds.HOLD) == one_by_one
        assert counters(together.books, now) == counters(apart.books, now)
        assert together.books.paces == apart.books.paces
        sent = [
            Conclusion(question, End.COMMIT)
            for question, decision in zip(batch, one_by_one, strict=True)
            if decision.verdict is Verdict.ALLOW
        ]
        await together.conclude(sent, now)
        for conclusion in sent:
            engine.conclude(apart._rules, conclusion, now, apart.books)
        assert counters(together.books, now) == counters(apart.books, now)


@FEWER
@given(worlds.books, traffic, st.sampled_from(End))
async def test_deciding_and_concluding_are_idempotent_by_id(
    policies: dict[str, Policy], sequence: list[tuple[int, Question]], end: End
) -> None:
    # A pace is never given back: deciding again takes another step of it.
    caps = {name: p for name, p in policies.items() if not isinstance(p, Pace)}
    store = await opened(caps)
    now = worlds.START
    for wait, question in sequence:
        now += wait
        first = await decide(store, question, now)
        held = counters(store.books)
        assert await decide(store, question, now) == first
        assert counters(store.books) == held
        if first.verdict is Verdict.ALLOW:
            conclusion = Conclusion(question, end, now + worlds.HOUR)
            await store.conclude([conclusion], now)
            ended = counters(store.books)
            await store.conclude([conclusion, conclusion], now)
            assert counters(store.books) == ended
            if end is End.COMMIT:  # a crash before the settlement: it is decided once more
                assert (await decide(store, question, now)).verdict is Verdict.ALLOW
                await store.conclude([conclusion], now)
                assert counters(store.books) == ended


moments = st.integers(worlds.START, worlds.START + worlds.HOUR)


@given(moments, st.integers(2, AHEAD_MS - 2))
def test_a_decision_leaves_what_a_later_one_has_reserved(moment: int, later: int) -> None:
    first, second = reserved_until(moment), reserved_until(moment + later)
    assert moment - 1 <= first <= moment
    assert is_ours(first, first)
    assert is_ours(first, second)
    assert not is_ours(second, first)


@given(moments, moments)
def test_what_is_kept_for_a_retry_is_any_decisions(moment: int, decided_until: int) -> None:
    assert moment <= kept_until(moment) < moment + 1_000
    assert is_ours(kept_until(moment), reserved_until(decided_until))


@given(moments, st.integers(AHEAD_MS + 2, worlds.HOUR))
def test_what_is_held_further_ahead_than_a_later_decision_would_is_any_decisions(
    moment: int, further: int
) -> None:
    """The clock was set back, or 0.2.0 kept it for a retry, at any millisecond."""
    assert is_ours(reserved_until(moment + further), reserved_until(moment))


@FEWER
@given(worlds.books, worlds.questions(), worlds.waits)
async def test_a_released_reservation_counts_no_more(
    policies: dict[str, Policy], question: Question, wait: int
) -> None:
    store = await opened(policies)
    decision = await decide(store, question, worlds.START)
    if decision.verdict is Verdict.ALLOW:
        await store.conclude([Conclusion(question, End.RELEASE)], worlds.START + wait)
        for account in store.books.accounts.values():
            assert all(not c.held and not c.times and not c.last for c in account.values())


@FEWER
@given(worlds.books, st.lists(worlds.suppressions, max_size=3), traffic)
async def test_nothing_goes_out_when_suppressed_or_quiet_unless_it_bypasses(
    policies: dict[str, Policy],
    suppressions: list[Suppression],
    sequence: list[tuple[int, Question]],
) -> None:
    store = await opened(policies)
    for number, suppression in enumerate(suppressions):
        await store.put_suppression(f"s{number}", suppression)
    now = worlds.START
    for wait, asked in sequence:
        now += wait
        question = worlds.at(asked, now)
        decision = await decide(store, question, now)
        label = None if question.labels is None else question.labels.class_
        plan = store._rules.plan(question.route, question.labels)
        quiet = any(rule.hours.ends(now) for rule in plan.quiets if not rule.shadow)
        listed = [
            s
            for number, s in enumerate(suppressions)
            if question.key in s.keys and f"s{number}" in plan.suppressions
        ]
        assert all(label not in s.bypass for s in listed)
        if listed:
            assert decision.verdict is Verdict.BLOCK
        elif quiet:
            assert decision.verdict is not Verdict.ALLOW
        for policy_id, policy in policies.items():
            if label in policy.bypass and isinstance(policy, Quiet):
                assert decision.reason is None or decision.reason.policy != policy_id


async def test_a_legal_opt_out_blocks_what_bypasses_everything_else() -> None:
    store = await opened({"nights": Quiet(from_="00:00", to="23:59", bypass=("transactional",))})
    question = Question(id="m", key="ann", due=0, labels=Labels(class_="transactional"))
    assert (await decide(store, question, worlds.START)).verdict is Verdict.ALLOW
    await store.put_suppression("law", Suppression(keys=("ann",), legal=True))
    decision = await decide(store, question, worlds.START)
    assert decision.verdict is Verdict.BLOCK
    assert decision.reason is not None
    assert decision.reason.policy == "law"
    assert decision.reason.detail == "suppressed by law"


@FEWER
@given(worlds.books, traffic)
async def test_a_deferral_ends_in_time_and_then_it_goes_out(
    policies: dict[str, Policy], sequence: list[tuple[int, Question]]
) -> None:
    store = await opened(policies)
    now = worlds.START
    for number, (wait, asked) in enumerate(sequence):
        now += wait
        question = msgspec.structs.replace(asked, id=f"m{number}", due=now)
        decision = await decide(store, question, now)
        if decision.verdict is Verdict.ALLOW:
            await store.conclude([Conclusion(question, End.COMMIT)], now)
        if decision.verdict is Verdict.DEFER:
            assert decision.until is not None
            assert now < decision.until
            assert question.expires is None or decision.until < question.expires
            calm = await opened(policies)
            calm.books = _copy(store)
            again = await decide(calm, worlds.woken(question, decision), decision.until)
            assert again.verdict is Verdict.ALLOW


def _copy(store: MemoryPolicies) -> Books:
    books = Books()
    books.accounts = deepcopy(store.books.accounts)
    books.paces = {
        name: msgspec.structs.replace(state) for name, state in store.books.paces.items()
    }
    return books


@given(
    st.sampled_from(["1/s", "3/s", "7/s", "50/s", "7/m", "333/s", "99999/s"]),
    st.integers(1, 12),
    st.lists(st.integers(0, 3_000), min_size=1, max_size=120),
)
async def test_a_pace_lets_no_more_through_than_burst_and_rate(
    rate: str, burst: int, gaps: list[int]
) -> None:
    """Whoever is deferred comes back exactly at its slot."""
    store = await opened({"ppg": Pace(rate=rate, burst=burst, bypass=("vip",))})
    now = worlds.START
    allowed: list[int] = []
    waiting: list[Question] = []
    for number, gap in enumerate(gaps):
        now += gap
        for question in sorted((w for w in waiting if w.due <= now), key=lambda w: w.due):
            waiting.remove(question)
            decision = await decide(store, question, question.due)
            assert decision.verdict is Verdict.ALLOW  # nobody overtook it
            allowed.append(question.due)
        question = Question(id=f"m{number}", key="ann", due=now)
        decision = await decide(store, question, now)
        if decision.verdict is Verdict.ALLOW:
            allowed.append(now)
        else:
            waiting.append(worlds.woken(question, decision))
    exact = parse_rate(rate)
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            span = Fraction(allowed[last] - allowed[first])
            assert last - first + 1 <= burst + exact * span


async def test_the_kth_deferral_by_a_pace_gets_slot_k() -> None:
    store = await opened({"ppg": Pace(rate="50/s", burst=10, bypass=("vip",))})
    batch = [Question(id=f"m{n}", key="ann", due=worlds.START) for n in range(30)]
    decisions = await store.decide(batch, worlds.START, worlds.HOLD)
    assert [d.verdict for d in decisions[:10]] == [Verdict.ALLOW] * 10
    assert [d.until for d in decisions[10:]] == [worlds.START + 20 * k for k in range(1, 21)]


async def test_of_two_paces_that_give_the_same_moment_one_gives_its_slot() -> None:
    store = await opened({"one": Pace(rate="1/s", burst=1), "two": Pace(rate="1/s", burst=1)})
    batch = [Question(id=f"m{n}", key="ann", due=worlds.START) for n in range(4)]
    decisions = await store.decide(batch, worlds.START, worlds.HOLD)
    for k, (question, decision) in enumerate(zip(batch[1:], decisions[1:], strict=True), 1):
        assert decision.until == worlds.START + 1_000 * k
        again = await decide(store, worlds.woken(question, decision), decision.until)
        assert again.verdict is Verdict.ALLOW


@settings(max_examples=5)
@given(st.data())
async def test_what_a_night_held_goes_out_spread_over_the_morning(data: st.DataObject) -> None:
    spread = data.draw(st.sampled_from([("0s", 1), ("1m", 60_000), ("10m", 600_000)]))
    store = await opened({"nights": Quiet(from_="22:00", to="08:00", spread=spread[0])})
    night = worlds.START - worlds.START % 86_400_000 + 3 * worlds.HOUR
    batch = [Question(id=f"m{n}", key=f"k{n}", due=night) for n in range(50)]
    untils = [d.until or 0 for d in await store.decide(batch, night, worlds.HOLD)]
    end = night + 5 * worlds.HOUR
    assert all(end <= until < end + spread[1] for until in untils)
    assert len(set(untils)) > 40 or spread[1] == 1


@FEWER
@given(worlds.books, traffic)
async def test_an_explanation_says_what_would_be_decided_and_writes_nothing(
    policies: dict[str, Policy], sequence: list[tuple[int, Question]]
) -> None:
    store = await opened(policies)
    now = worlds.START
    for wait, asked in sequence:
        now += wait
        question = worlds.at(asked, now)
        before = _copy(store)
        (told,) = await store.explain([question], now)
        assert store.books.accounts == before.accounts
        moved = {n: s for n, s in store.books.paces.items() if s.next or s.cursor}
        assert moved == {n: s for n, s in before.paces.items() if s.next or s.cursor}
        decision = await decide(store, question, now)
        assert (told.verdict, told.until, told.reason) == (
            decision.verdict,
            decision.until,
            decision.reason,
        )
        assert set(decision.rules) <= set(told.rules)
        plan = store._rules.plan(question.route, question.labels)
        looked_at = {rule.id for rule in (*plan.quiets, *plan.caps, *plan.paces)}
        assert looked_at <= {result.policy for result in told.rules}


async def test_counters_of_large_caps_stay_small_and_never_undercount() -> None:
    store = await opened({"big": Cap(scope=(Scope.CAMPAIGN,), limit=600, window="1h")})
    labels = Labels(campaign="spring")
    allowed: list[int] = []
    for number in range(1_500):
        now = worlds.START + number * 4_000
        question = Question(id=f"m{number}", key="ann", due=now, labels=labels)
        if (await decide(store, question, now)).verdict is Verdict.ALLOW:
            await store.conclude([Conclusion(question, End.COMMIT)], now)
            allowed.append(now)
    (account,) = store.books.accounts.values()
    (counter,) = account.values()
    assert len(counter.times) <= 260
    start = 0
    for end, moment in enumerate(allowed):
        while allowed[start] <= moment - worlds.HOUR:
            start += 1
        assert end - start + 1 <= 600
    assert len(allowed) > 900  # not much is lost to the coarse memory
