"""A simulated broker finds what a dispatcher does wrong."""

from __future__ import annotations

from penstock.contrib.dispatcher.broker_book import BrokerBook, BrokerTotals, Visitor, quantiles

EVENT = "concert"


def book(capacity: int = 2, in_use: int = 0) -> BrokerBook:
    return BrokerBook("b1", capacity, {EVENT: in_use})


def lined_up(book: BrokerBook, *users: str) -> None:
    """Each with a record, one millisecond apart, with scores 1, 2, …"""
    for number, user in enumerate(users, 1):
        book.lines_up(Visitor(EVENT, user, float(number), joined=number, ready=number))


def promoted(book: BrokerBook, *users: str, at: int = 100) -> None:
    for user in users:
        score = ord(user) - ord("a") + 1
        book.promoted(EVENT, user, str(score), at)


def told(book: BrokerBook, *users: str, instance: str = "b1", valid: bool = True) -> None:
    for user in users:
        book.got_token(EVENT, user, instance, 200, valid=valid)


def ended(book: BrokerBook, *given_back: float) -> BrokerTotals:
    return book.finished({EVENT: list(given_back)}, 1.0)


def test_all_is_well_when_everybody_goes_in_turn() -> None:
    seen = book()
    lined_up(seen, "a", "b", "c")
    promoted(seen, "a", "b")
    promoted(seen, "c", at=150)
    told(seen, "a", "b", "c")
    totals = ended(seen, 120.0)
    assert (totals.joined, totals.promoted, totals.entered) == (3, 3, 3)
    wrong = (totals.lost, totals.repeated, totals.invalid_tokens, totals.wrong_instance)
    assert (wrong, totals.order_violations, totals.wrong_promoted_at) == ((0, 0, 0, 0), 0, 0)
    assert (totals.events[EVENT].most_in_use, totals.events[EVENT].over) == (2, 0)
    assert totals.late_ms == {"p50": 98, "p99": 98}, "c had its slot 30 ms after it was free"


def test_a_promotion_without_a_free_slot_is_over_capacity() -> None:
    seen = book()
    lined_up(seen, "a", "b", "c")
    promoted(seen, "a", "b", "c")
    assert (ended(seen, 101.5).events[EVENT].most_in_use, ended(seen).events[EVENT].over) == (3, 1)


def test_slots_in_use_before_and_promotions_of_other_brokers_count() -> None:
    seen = book(in_use=1)
    lined_up(seen, "a")
    promoted(seen, "x")
    promoted(seen, "a")
    assert ended(seen).events[EVENT].over == 1


def test_who_comes_later_and_goes_first_overtakes_those_who_were_ready() -> None:
    seen = book()
    lined_up(seen, "a", "b", "c")
    promoted(seen, "c", "a", "b")
    assert ended(seen).order_violations == 2


def test_a_visitor_whose_record_comes_later_is_not_overtaken() -> None:
    seen = book()
    lined_up(seen, "a", "b")
    seen._visitors[EVENT, "a"].ready = 100.0
    promoted(seen, "b", "a")
    assert ended(seen).order_violations == 0


def test_a_second_promotion_and_a_second_token_are_repeats() -> None:
    seen = book()
    lined_up(seen, "a")
    promoted(seen, "a", "a")
    told(seen, "a", "a")
    assert ended(seen).repeated == 2


def test_who_never_gets_a_token_is_lost() -> None:
    seen = book()
    lined_up(seen, "a", "b")
    promoted(seen, "a", "b")
    told(seen, "a")
    assert (ended(seen).lost, seen.unfinished) == (1, 2)


def test_tokens_that_cannot_be_read_are_counted() -> None:
    seen = book()
    lined_up(seen, "a")
    promoted(seen, "a")
    told(seen, "a", valid=False)
    assert (ended(seen).invalid_tokens, seen.totals.entered) == (1, 0)


def test_unknown_is_wrong_only_when_there_was_a_record() -> None:
    seen = book()
    lined_up(seen, "a", "b")
    seen._visitors[EVENT, "b"].ready = 100.0
    promoted(seen, "a", "b")
    told(seen, "a", "b", instance="unknown")
    assert (ended(seen).wrong_instance, seen.totals.late_records) == (1, 1)


def test_a_moment_in_place_of_the_score_is_noticed() -> None:
    seen = book()
    lined_up(seen, "a")
    seen.promoted(EVENT, "a", "1700000000", 100)
    assert ended(seen).wrong_promoted_at == 1


def test_of_nothing_there_are_no_quantiles() -> None:
    assert quantiles([]) == {"p50": None, "p99": None}
