"""What the simulation keeps of a run is right whatever order its steps come in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.model.decision import ALLOWED, Conclusion, Decision, End, Question, Reason, RuleResult
from penstock.model.message import Message
from penstock.model.state import State
from penstock.model.verdict import Verdict
from tests.simulation.checks import by_message
from tests.simulation.clocks import ServerClock
from tests.simulation.fleet import Fleet
from tests.simulation.journal import Journal
from tests.simulation.loop import VirtualLoop
from tests.simulation.plan import draw
from tests.simulation.receiver import Receiver
from tests.simulation.rulings import Rulings

NOW = 1_900_000_000_000
HOLD = 60_000


def _asked(name: str) -> Question:
    return Question(id=name, key="k", due=NOW)


def _full_cap(until: int) -> Decision:
    result = RuleResult(policy="cap", verdict=Verdict.DEFER, until=until, detail="2 of 2 in 10s")
    return Decision(
        verdict=Verdict.DEFER, until=until, reason=Reason("cap", "2 of 2 in 10s"), rules=(result,)
    )


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.fixture
def counted(loop: VirtualLoop) -> _Counted:
    return _Counted(Journal(ServerClock(loop)))


class _Counted:
    """Rulings of one key, told step by step."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.rulings = Rulings(self.journal, None)

    def allow(self, name: str, now: int) -> None:
        self.rulings.decide("p0", [_asked(name)], now, HOLD, [ALLOWED])

    def conclude(self, name: str, end: End, now: int) -> None:
        self.rulings.conclude("p0", [Conclusion(_asked(name), end)], now)

    def may_be_full(self, now: int) -> bool:
        """For one more of the key."""
        self.rulings.decide("p0", [_asked("late")], now, HOLD, [_full_cap(now + 1)])
        return not self.journal.failures


def test_a_message_counted_again_by_a_clock_that_was_set_back_counts_as_long_as_it_did(
    counted: _Counted,
) -> None:
    for name in ("one", "two"):
        counted.allow(name, NOW)
        counted.conclude(name, End.COMMIT, NOW)
    counted.conclude("one", End.COMMIT, NOW - 20_000)
    assert counted.may_be_full(NOW + 5_000)


def test_a_counted_message_that_is_allowed_again_and_given_back_stays_counted(
    counted: _Counted,
) -> None:
    for name in ("one", "two"):
        counted.allow(name, NOW)
        counted.conclude(name, End.COMMIT, NOW)
    counted.allow("one", NOW + 100)
    counted.conclude("one", End.RELEASE, NOW + 200)
    assert counted.may_be_full(NOW + 5_000)


def test_a_place_that_was_given_back_counts_no_more(counted: _Counted) -> None:
    for name in ("one", "two"):
        counted.allow(name, NOW)
        counted.conclude(name, End.RELEASE, NOW)
    assert not counted.may_be_full(NOW + 5_000)


def test_sends_of_a_message_that_changed_its_route_are_in_the_order_they_began(
    loop: VirtualLoop,
) -> None:
    clock = ServerClock(loop)
    plan = next(plan for plan in map(draw, range(100)) if len(plan.routes) == 2)
    journal, chance = Journal(clock), random.Random(0)
    receivers = {
        route.name: Receiver(route, loop, clock, journal, chance, 1_000) for route in plan.routes
    }
    for route, attempt in (("b", 1), ("b", 2), ("a", 3)):
        receivers[route].begin("p0", [_message(route, attempt)])
    fleet = cast("Fleet", SimpleNamespace(receivers=receivers))
    assert [send.message.attempt for send in by_message(fleet)["m"]] == [1, 2, 3]


def _message(route: str, attempt: int) -> Message:
    return Message(
        id="m",
        route=route,
        key="k",
        payload=b"",
        due=NOW,
        created=NOW,
        state=State.LEASED,
        attempt=attempt,
    )
