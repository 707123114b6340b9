"""The seam to whatever keeps policies and counts by them.

The rules of `ports/store.py` hold here too: batch first, `now` is given, outcomes are values, and
a store that is away raises StoreUnavailable. `penstock.limits` says what every answer must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.model.decision import Conclusion, CounterFigure, Decision, PaceAllowance, Subject
from penstock.model.outcome import Settlement
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.model.state import State


class PolicyStore(Protocol):
    """Policies, suppressions and counters, shared by every process on the same store."""

    def use_zone(self, zone: str) -> None:
        """The zone where neither a message nor its policy names a known one; UTC unless told."""
        ...

    async def book(self) -> RuleBook:
        """Everything now in force. Its version grows with every change, by whichever process."""
        ...

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        """Keep it for what is decided from now on; the version that has it.

        The same policy again changes nothing. Counters go on; they start anew only after a drop.
        """
        ...

    async def drop_policy(self, policy_id: str) -> bool:
        """False: there was none."""
        ...

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        """Keep the list with exactly these keys; the version that has it."""
        ...

    async def drop_suppression(self, list_id: str) -> bool: ...

    async def suppression(self, list_id: str) -> Suppression | None:
        """The list with its keys in order."""
        ...

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        """Add keys, then remove keys; False: there is no such list."""
        ...

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        """One decision each, in order, the same as one by one.

        ALLOW holds a place in every cap for `hold` ms and moves every pace on; anything else
        leaves the counters as if the message had never come (a place it held is given back), but
        for the slot that a pace gave out. Deciding an id again uses the places that it holds.
        """
        ...

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        """End reservations: count at `now`, give back, or hold for longer. Idempotent by id."""
        ...

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        """What would be decided now, each on its own, with what every rule says. Never writes."""
        ...

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        """Every cap that counts this key."""
        ...

    async def forget(self, key: str, now: int) -> int:
        """Drop every counter of this key; how many there were.

        Places held by messages that are being sent may stay until their lease has ended.
        """
        ...

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        """How many of a route may go now by the paces that cover all of it; None: no such pace.

        A look, not a reservation.
        """
        ...


class CountedSettle(Protocol):
    """A store of messages that changes counters in the same step."""

    async def settle_counted(
        self, settlements: Sequence[Settlement], sent: Sequence[Subject], now: int
    ) -> list[State | None]:
        """Count what was sent, then settle. Nothing is settled that was not counted; a call that
        raises may have counted, and counting again changes nothing."""
        ...
