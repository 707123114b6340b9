"""What a worker surely holds: a lease counts for four fifths of its time, by the answers it had."""

from __future__ import annotations

from penstock.flow.release import UNSURE, Leases

LEASE = 1_000
SURE = LEASE - LEASE // UNSURE


def held_until(leases: Leases, token: int) -> int:
    return next(now for now in range(10 * LEASE) if not leases.hold(token, now))


def test_a_lease_is_held_but_for_its_last_part() -> None:
    leases = Leases(LEASE)
    leases.take(7, 2, LEASE)
    assert held_until(leases, 7) == SURE
    assert not leases.hold(8, 0)


def test_an_extension_that_was_answered_in_time_holds_it_longer() -> None:
    leases = Leases(LEASE)
    leases.take(7, 2, LEASE)
    leases.extended([7, 8], SURE - 1, 1_500)
    assert held_until(leases, 7) == 1_500 - LEASE // UNSURE


def test_an_extension_that_was_answered_too_late_changes_nothing() -> None:
    """The lease may have been lost before: the store's answer does not say so."""
    leases = Leases(LEASE)
    leases.take(7, 2, LEASE)
    leases.extended([7], SURE, 2_000)
    leases.extended([7], SURE + 500, 2_500)
    assert held_until(leases, 7) == SURE


def test_a_lease_whose_messages_are_settled_is_gone() -> None:
    leases = Leases(LEASE)
    leases.take(7, 2, LEASE)
    leases.settled(7, 1)
    assert leases.hold(7, 0)
    leases.settled(7, 1)
    assert leases.tokens == []
    assert not leases.hold(7, 0)
