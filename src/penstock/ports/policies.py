"""The seam to a store of policies and their counters.

The rules of `ports/store.py` hold here too: batch first, `now` is given, outcomes are values, and a
store that is unavailable raises StoreUnavailable. `penstock.limits` defines every answer.
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
        """Set the zone used where neither a message nor its policy names a known one; UTC by
        default.
        """
        ...

    async def book(self) -> RuleBook:
        """Everything now in force. Its version grows with every change, by any process."""
        ...

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        """Store the policy for every decision from now on; return the version that includes it.

        The same policy again changes nothing. Counters continue; they restart only after a drop.
        """
        ...

    async def drop_policy(self, policy_id: str) -> bool:
        """False: there was none."""
        ...

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        """Store the list with exactly these keys; return the version that includes it."""
        ...

    async def drop_suppression(self, list_id: str) -> bool: ...

    async def suppression(self, list_id: str) -> Suppression | None:
        """The list with its keys in order."""
        ...

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        """Add keys, then remove keys; False if there is no such list."""
        ...

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        """One decision each, in order, the same as one by one.

        ALLOW reserves a unit of every cap for `hold` ms and advances every pace; any other verdict
        leaves the counters as if the message had never come (its own reservation is released, also
        one kept for a retry, but not a later decision's), but for the slot that a pace gave out.
        Deciding an id again uses the reservations it has.
        """
        ...

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        """End reservations: count at `now`, give back, or hold for longer. Idempotent by id."""
        ...

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        """The decision for each subject now, on its own, with every rule's answer. Never writes."""
        ...

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        """Every cap that counts this key."""
        ...

    async def forget(self, key: str, now: int) -> int:
        """Delete every counter of this key; return how many there were.

        Reservations of messages that are being sent may stay until their lease has ended.
        """
        ...

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        """How many of a route the paces that cover all of it allow now; None: no such pace.

        Reads only; reserves nothing.
        """
        ...


class CountedSettle(Protocol):
    """A store of messages that changes counters in the same step."""

    async def settle_counted(
        self, settlements: Sequence[Settlement], sent: Sequence[Subject], now: int
    ) -> list[State | None]:
        """Count the sent subjects, then settle. Nothing is settled that was not counted; a call
        that raises may have counted, and counting again changes nothing.
        """
        ...
