"""History: differences of totals, a point a second, unknown where nothing was seen."""

from __future__ import annotations

from penstock.flow.history import LENGTH, MAX_GAP, History
from penstock.model.lateness import Lateness
from penstock.model.times import format_moment

NOW = 1_900_000_000_500


def late(*millis: int) -> Lateness:
    lateness = Lateness()
    lateness.add(millis)
    return lateness


def test_before_the_first_look_everything_is_unknown() -> None:
    view = History().view(NOW)
    assert {len(curve) for curve in view.points.values()} == {LENGTH}
    assert all(point is None for curve in view.points.values() for point in curve)
    assert view.from_ == format_moment(NOW - 500 - (LENGTH - 1) * 1000)


def test_at_least_a_quarter_of_an_hour_is_kept() -> None:
    assert LENGTH >= 15 * 60


def test_a_point_is_what_came_since_the_second_before() -> None:
    history = History()
    history.add(NOW, {"accepted": 10, "retry": 1}, late(1, 1), 5)
    history.add(NOW + 1000, {"accepted": 13, "retry": 2, "dead": 1}, late(1, 1, 8, 60), 7)
    points = history.view(NOW + 1000).points
    assert points["accepted"][-2:] == [None, 3]
    assert points["failed"][-2:] == [None, 2]
    assert points["pending"][-2:] == [5, 7]
    assert points["late_p50"][-2:] == [None, 8]
    assert points["late_p99"][-2:] == [None, 60]


def test_nothing_released_has_no_lateness() -> None:
    history = History()
    history.add(NOW, {}, late(5), 0)
    history.add(NOW + 1000, {}, late(5), 0)
    assert history.view(NOW).points["late_p99"][-1] is None


def test_a_late_look_is_spread_over_the_seconds_it_covers() -> None:
    history = History()
    history.add(NOW, {"accepted": 0}, late(), 0)
    history.add(NOW + 3000, {"accepted": 9}, late(), 0)
    view = history.view(NOW + 3000)
    assert view.points["accepted"][-4:] == [None, 3, 3, 3]
    assert view.from_ == format_moment(NOW - 500 + 3000 - (LENGTH - 1) * 1000)


def test_a_long_gap_is_unknown() -> None:
    history = History()
    history.add(NOW, {"accepted": 0}, late(), 1)
    history.add(NOW + (MAX_GAP + 1) * 1000, {"accepted": 9}, late(), 2)
    points = history.view(NOW).points
    assert points["accepted"][-1] is None
    assert points["pending"][-1 - (MAX_GAP + 1)] == 1
    assert points["pending"][-2:] == [None, 2]


def test_a_second_look_in_the_same_second_waits_for_the_next() -> None:
    history = History()
    history.add(NOW, {"accepted": 0}, late(), 0)
    history.add(NOW + 100, {"accepted": 4}, late(), 0)
    history.add(NOW + 1000, {"accepted": 5}, late(), 0)
    assert history.view(NOW).points["accepted"][-2:] == [None, 5]


def test_counters_that_went_away_are_not_a_negative_rate() -> None:
    history = History()
    history.add(NOW, {"accepted": 100}, late(1, 2, 3), 0)
    history.add(NOW + 1000, {"accepted": 1}, late(1), 0)
    assert history.view(NOW).points["accepted"][-1] == 0


def test_a_clock_that_went_back_goes_on_from_there() -> None:
    history = History()
    history.add(NOW, {"accepted": 1}, late(), 0)
    history.add(NOW - 5000, {"accepted": 2}, late(), 0)
    history.add(NOW - 4000, {"accepted": 4}, late(), 0)
    view = history.view(NOW)
    assert view.points["accepted"][-2:] == [None, 2]
    assert view.from_ == format_moment(NOW - 500 - 4000 - (LENGTH - 1) * 1000)


def test_the_newest_point_is_the_last_of_every_curve() -> None:
    history = History()
    history.add(NOW, {"accepted": 1}, late(1), 5)
    history.add(NOW + 1000, {"accepted": 4}, late(1, 8), 6)
    newest = history.newest()
    view = history.view(NOW + 1000)
    assert newest.at == format_moment(NOW + 500)
    assert newest.points == {name: curve[-1] for name, curve in view.points.items()}
    assert newest.points["accepted"] == 3
