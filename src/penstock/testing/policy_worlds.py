"""Random policies, messages and traffic, for every test of decisions."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.model.decision import Decision, Question
from penstock.model.message import Labels
from penstock.model.policy import (
    AppliesTo,
    Calendar,
    CalendarWindow,
    Cap,
    Day,
    OnExceed,
    Pace,
    Policy,
    Quiet,
    Scope,
    Suppression,
    check_policy,
)
from penstock.model.verdict import Decided, Verdict

START = 1_793_000_000_000  # 26 Oct 2026, a day after Europe's clocks went back
HOLD = 40_000
MINUTE = 60_000
HOUR = 3_600_000
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]

keys = st.sampled_from(["ann", "bob", "cid"])
routes = st.sampled_from(["push", "mail"])
classes = st.sampled_from([None, "promotional", "transactional"])
channels = st.sampled_from([None, "sms", "app"])
zones = st.sampled_from(ZONES)

labels = st.builds(
    Labels,
    channel=channels,
    campaign=st.sampled_from([None, "spring"]),
    class_=classes,
    tags=st.sampled_from([(), ("a",), ("a", "b")]),
    tz=st.one_of(st.none(), zones),
)
applies = st.one_of(
    st.none(),
    st.builds(AppliesTo, route=st.just(("push",))),
    st.builds(AppliesTo, class_=st.just(("promotional",))),
    st.builds(AppliesTo, channel=st.just(("sms",)), tag=st.just(("a",))),
)
bypasses = st.sampled_from([(), (), ("transactional",)])
shadows = st.sampled_from([False, False, False, True])
max_defers = st.sampled_from([None, None, "2h", "3d"])
windows = st.one_of(
    st.sampled_from(["10s", "5m", "1h", "24h"]),
    st.builds(CalendarWindow, calendar=st.sampled_from(Calendar), zone=st.one_of(st.none(), zones)),
)
scopes = st.sampled_from(
    [
        (Scope.KEY,),
        (Scope.KEY, Scope.CHANNEL),
        (Scope.KEY, Scope.TAG),
        (Scope.CAMPAIGN,),
        (Scope.TAG,),
        (Scope.ROUTE, Scope.CHANNEL),
    ]
)
caps = st.builds(
    Cap,
    scope=scopes,
    limit=st.sampled_from([1, 2, 3, 150]),
    window=windows,
    min_interval=st.sampled_from([None, None, "7s", "20m"]),
    on_exceed=st.sampled_from([OnExceed.DEFER, OnExceed.DEFER, OnExceed.BLOCK]),
    max_defer=max_defers,
    applies_to=applies,
    bypass=bypasses,
    bypass_counts=st.booleans(),
    shadow=shadows,
)
quiets = st.builds(
    lambda start, length, **rest: Quiet(
        from_=f"{start // 60:02d}:{start % 60:02d}",
        to=f"{(start + length) // 60 % 24:02d}:{(start + length) % 60:02d}",
        **rest,
    ),
    start=st.integers(0, 24 * 60 - 1),
    length=st.integers(1, 12 * 60),
    days=st.sampled_from([tuple(Day), (Day.MON, Day.TUE), (Day.SUN,)]),
    zone=st.one_of(st.none(), zones),
    spread=st.sampled_from(["0s", "1m", "1h"]),
    max_defer=max_defers,
    applies_to=applies,
    bypass=bypasses,
    shadow=shadows,
)
paces = st.builds(
    Pace,
    rate=st.sampled_from(["1/s", "3/s", "50/s", "7/m", "1/h"]),
    burst=st.sampled_from([1, 2, 10]),
    on_exceed=st.sampled_from([OnExceed.DEFER, OnExceed.DEFER, OnExceed.BLOCK]),
    max_defer=max_defers,
    applies_to=applies,
    bypass=bypasses,
    bypass_counts=st.booleans(),
    shadow=shadows,
)
policies = st.one_of(caps, quiets, paces).map(check_policy)
books = st.dictionaries(st.sampled_from(["p1", "p2", "p3", "p4", "p5"]), policies, max_size=5)
suppressions = st.builds(
    Suppression,
    keys=st.sampled_from([("ann",), ("bob", "dan"), ()]),
    legal=st.just(False),
    bypass=bypasses,
    applies_to=applies,
)
waits = st.sampled_from([0, 0, 1, 250, 5_000, MINUTE, 20 * MINUTE, HOUR, 11 * HOUR])


@st.composite
def questions(draw: st.DrawFn, now: int = START, ids: int = 40) -> Question:
    return Question(
        id=f"m{draw(st.integers(0, ids))}",
        route=draw(routes),
        key=draw(keys),
        due=now,
        expires=draw(st.sampled_from([None, None, now + HOUR, now + 40 * HOUR])),
        labels=draw(st.one_of(st.none(), labels)),
    )


def at(question: Question, now: int) -> Question:
    """The same message, due at another moment."""
    return Question(
        id=question.id, route=question.route, key=question.key, due=now, labels=question.labels
    )


def woken(question: Question, decision: Decision) -> Question:
    """The message as it is decided again after its deferral."""
    assert decision.verdict is Verdict.DEFER
    assert decision.reason is not None
    assert decision.until is not None
    kept = Decided(
        decision.verdict,
        decision.reason.policy,
        decision.reason.detail,
        decision.until,
        question.due,
    )
    return Question(
        id=question.id,
        route=question.route,
        key=question.key,
        due=decision.until,
        expires=question.expires,
        labels=question.labels,
        decided=kept,
    )


def book_of(*policies: tuple[str, Policy]) -> dict[str, Policy]:
    return dict(policies)
