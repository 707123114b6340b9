"""Who a request comes from, and what each of them may do a second."""

from __future__ import annotations

import pytest

from penstock.api.http.clients import Clients
from penstock.api.http.visitors import BURST_SECONDS, Budgets

PROXIES = ("10.0.0.0/8", "192.0.2.7", "fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "name"),
    [
        ("198.51.100.1", None, "198.51.100.1"),
        ("198.51.100.1", b"203.0.113.9", "198.51.100.1"),  # no proxy of ours said it
        ("10.1.2.3", None, "10.1.2.3"),
        ("10.1.2.3", b"203.0.113.9", "203.0.113.9"),
        ("10.1.2.3", b"1.1.1.1, 203.0.113.9", "203.0.113.9"),  # the first is the client's word
        ("10.1.2.3", b"1.1.1.1, 203.0.113.9, 192.0.2.7", "203.0.113.9"),
        ("10.1.2.3", b"10.9.9.9", "10.9.9.9"),
        ("10.1.2.3", b"1.1.1.1, nonsense", "10.1.2.3"),
        ("10.1.2.3", b"", "10.1.2.3"),
        ("::ffff:10.1.2.3", b"203.0.113.9", "203.0.113.9"),
        ("fd00::1", b"2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", None, "2001:db8:1:2::/64"),
        ("", b"203.0.113.9", ""),
    ],
)
def test_only_a_trusted_proxy_says_who_the_client_is(
    peer: str, forwarded: bytes | None, name: str
) -> None:
    assert Clients(PROXIES).name(peer, forwarded) == name


def test_without_trusted_proxies_a_forwarded_address_counts_for_nothing() -> None:
    assert Clients().name("10.1.2.3", b"203.0.113.9") == "10.1.2.3"


def test_many_clients_do_not_fill_the_budget_of_one() -> None:
    budgets = Budgets(lambda: 0.0, most=10)
    for _ in range(BURST_SECONDS):
        assert budgets.take("greedy", 1)
    for number in range(1_000):
        budgets.take(f"other{number}", 1)
        assert not budgets.take("greedy", 1)


def test_a_budget_fills_again_with_time_and_by_what_is_given_back() -> None:
    now = [0.0]
    budgets = Budgets(lambda: now[0])
    assert [budgets.take("a", 1) for _ in range(4)] == [True, True, True, False]
    budgets.give_back("a")
    assert [budgets.take("a", 1) for _ in range(2)] == [True, False]
    now[0] = 2.0
    assert [budgets.take("a", 1) for _ in range(3)] == [True, True, False]
