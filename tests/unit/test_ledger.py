"""The checker finds what it is there to find."""

from penstock.testing.ledger import Arrival, compare


def test_a_clean_run_has_nothing_to_report() -> None:
    verdict = compare({"a": 10}, [Arrival("a", 1, 10)])
    assert (verdict.lost, verdict.early, verdict.duplicates, verdict.unknown) == ((), (), {}, ())


def test_each_broken_promise_is_named_by_id() -> None:
    verdict = compare(
        {"lost": 10, "early": 10, "twice": 10, "same": 10},
        [
            Arrival("early", 1, 9),
            Arrival("twice", 1, 10),
            Arrival("twice", 2, 12),
            Arrival("same", 1, 10),
            Arrival("same", 1, 11),
            Arrival("never asked", 1, 5),
        ],
    )
    assert verdict.lost == ("lost",)
    assert verdict.early == ("early",)
    assert verdict.duplicates == {"twice": (1, 2), "same": (1, 1)}
    assert verdict.same_attempt == ("same",)
    assert verdict.unknown == ("never asked",)
