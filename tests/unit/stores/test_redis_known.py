"""Which partitions a claim asks: those known to have something due, or all when others may have."""

from __future__ import annotations

from penstock.stores.redis.messages.lease import ALL_MS, IndexedBucket, RouteKnowledge

ORDER = [2, 3, 0, 1]
NOW = 1_000_000


def known(heads: dict[int, int], buckets: dict[int, int] | None = None) -> RouteKnowledge:
    """As after a claim that has asked all at NOW; buckets by their earliest due."""
    route = RouteKnowledge("r")
    route.asking_all()
    route.heads.update(heads)
    for partition in ORDER:
        earliest = (buckets or {}).get(partition)
        near = [] if earliest is None else [(earliest, IndexedBucket(partition, b"member"))]
        route.buckets[partition] = near
    route.all_asked(NOW)
    return route


def test_nothing_is_left_out_before_all_have_been_asked() -> None:
    assert RouteKnowledge("r").worth_asking(ORDER, NOW) == ORDER


def test_those_that_have_something_due_are_asked_in_the_order_given() -> None:
    route = known({0: NOW + 5, 1: NOW + 6, 3: NOW + 5}, {1: NOW + 5})
    assert route.worth_asking([0, 1, 2, 3, 4, 5], NOW + 5) == [0, 1, 2, 3, 4, 5]  # 4, 5: unknown
    assert known({0: NOW + 5, 3: NOW + 5}).worth_asking(ORDER, NOW + 5) == [3, 0]


def test_a_bucket_counts_by_the_earliest_in_it() -> None:
    route = known({0: NOW + 50}, {2: NOW + 7})
    assert route.worth_asking(ORDER, NOW + 7) == [2]
    assert route.next_due() == NOW + 7
    assert route.next_head() == NOW + 50


def test_all_are_asked_when_nothing_or_much_is_known_to_be_due() -> None:
    assert known({0: NOW + 50}).worth_asking(ORDER, NOW + 1) == ORDER
    assert known({0: NOW, 1: NOW, 2: NOW}).worth_asking(ORDER, NOW) == ORDER


def test_all_are_asked_every_now_and_then_and_when_the_clock_went_back() -> None:
    route = known({0: NOW})
    assert route.worth_asking(ORDER, NOW + ALL_MS - 1) == [0]
    assert route.worth_asking(ORDER, NOW + ALL_MS) == ORDER
    assert route.worth_asking(ORDER, NOW - 1) == ORDER


def test_news_of_something_due_means_all_until_all_were_asked() -> None:
    route = known({0: NOW + 5})
    route.heard(NOW + 7)
    route.heard(NOW + 9)
    assert route.worth_asking(ORDER, NOW + 6) == [0]
    assert route.worth_asking(ORDER, NOW + 7) == ORDER
    route.asking_all()
    route.heads[0] = NOW + 20
    route.buckets.update({partition: [] for partition in ORDER})
    route.all_asked(NOW + 7)
    assert route.worth_asking(ORDER, NOW + 20) == [0]


def test_what_comes_while_all_are_asked_is_not_forgotten() -> None:
    route = known({0: NOW + 5})
    route.asking_all()
    route.heard(NOW + 3)
    route.buckets.update({partition: [] for partition in ORDER})
    route.heads[0] = NOW + 5
    route.all_asked(NOW)
    assert route.worth_asking(ORDER, NOW + 5) == ORDER


def test_all_asked_without_an_answer_means_all_again() -> None:
    route = known({0: NOW})
    route.asking_all()
    assert route.worth_asking(ORDER, NOW) == ORDER
    assert route.next_due() is None
