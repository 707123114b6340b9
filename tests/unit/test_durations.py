"""How long things took: buckets, sum, and a longest that decays."""

from penstock.model.durations import DURATION_SECONDS, WINDOW_SECONDS, Durations


def test_each_duration_is_in_the_first_bucket_that_holds_it() -> None:
    durations = Durations()
    for seconds in (0.0, 0.001, 0.0011, 0.05, 99.0):
        durations.add(seconds, 0.0)
    by_bound = dict(zip((*DURATION_SECONDS, None), durations.buckets, strict=True))
    assert (by_bound[0.001], by_bound[0.0025], by_bound[0.05], by_bound[None]) == (2, 1, 1, 1)
    assert (durations.count, round(durations.total, 4)) == (5, 99.0521)


def test_the_longest_is_of_this_minute_and_the_one_before() -> None:
    durations = Durations()
    durations.add(3.0, 0.0)
    durations.add(1.0, WINDOW_SECONDS)
    assert durations.longest(WINDOW_SECONDS) == 3.0
    assert durations.longest(2 * WINDOW_SECONDS) == 1.0
    assert durations.longest(3 * WINDOW_SECONDS) == 0.0


def test_nothing_of_long_ago_is_the_longest() -> None:
    durations = Durations()
    durations.add(3.0, 0.0)
    assert durations.longest(5 * WINDOW_SECONDS) == 0.0
