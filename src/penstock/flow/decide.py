"""DECIDE: which of the claimed messages may be sent now; the rest is settled with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.flow.conclude import committed, counted_in_doubt
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.limits.engine import expired
from penstock.model.decision import Decision, PaceAllowance, allowed_text
from penstock.model.message import Message
from penstock.model.outcome import Claim, Settlement, may_have_arrived_before
from penstock.model.route import Route
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict
from penstock.time.clock import Clock

HOLD_MARGIN_MS = 600_000
"""Milliseconds that a reservation outlives its lease if no worker concludes it.

A send in flight may extend its lease; the margin is the time it may take before a cap could give
its reservation to another message.
"""


class Ruling(NamedTuple):
    """The decision about a claim: messages to send and settlements, each in its order."""

    ready: Sequence[Message]
    """The messages to send."""
    refused: list[Settlement]
    """Settled without a send."""
    allowed: dict[str, str]
    """Message id → what the policies that examined it answered, for each message to send."""
    reserved_until: int = 0
    """Until when the caps of the messages to send are reserved; 0: nothing is."""


class Decide:
    """The gate of one route. Without policies it looks only at the message itself."""

    def __init__(
        self,
        route: Route,
        policies: Policies | None,
        observer: Observer,
        clock: Clock,
        *,
        lease: int,
    ) -> None:
        self._route = route
        self._policies = policies
        self._observer = observer
        self._clock = clock
        self._hold = lease + HOLD_MARGIN_MS

    @property
    def asks(self) -> bool:
        """True if there are policies to ask."""
        return self._policies is not None and self._policies.active

    async def allowance(self, wanted: int) -> PaceAllowance:
        """Number of messages to claim now: a paced backlog stays in the store, in its order."""
        policies = self._policies
        if policies is None:
            return PaceAllowance(wanted)
        if not policies.known:  # nothing goes out past them at the start
            await policies.refresh()
        if not policies.active:
            return PaceAllowance(wanted)
        return await policies.allowance(self._route.name, wanted, self._clock.now())

    async def decide(self, claim: Claim, now: int) -> Ruling:
        refused = [
            settlement
            for message in claim.messages
            if (settlement := _refuse(message, claim.token, self._route, now)) is not None
        ]
        ready: Sequence[Message] = claim.messages
        if refused:
            ids = {settlement.message.id for settlement in refused}
            ready = [message for message in claim.messages if message.id not in ids]
        if ready and self._policies is not None and self.asks:
            decisions = await self._policies.decide(ready, now, self._hold)
            await self._count_doubtful(self._policies, ready, decisions, now)
            ruling = self._sort(ready, decisions, claim.token)
            return ruling._replace(
                refused=refused + ruling.refused, reserved_until=now + self._hold
            )
        return Ruling(ready, refused, {})

    async def _count_doubtful(
        self,
        policies: Policies,
        messages: Sequence[Message],
        decisions: Sequence[Decision],
        now: int,
    ) -> None:
        """Count earlier attempts that may have arrived, for messages that are deferred now.

        The deferral gave the reservation back, as it should for a message that was never sent.
        """
        doubtful = [
            subject
            for message, decision in zip(messages, decisions, strict=True)
            if decision.verdict is Verdict.DEFER and may_have_arrived_before(message)
            for subject in counted_in_doubt(message)
        ]
        if doubtful:
            await policies.conclude(committed(doubtful), now)

    def _sort(
        self, messages: Sequence[Message], decisions: Sequence[Decision], token: int
    ) -> Ruling:
        if (same := _allowed_alike(decisions)) is not None:
            self._observer.count("shadowed", self._route.name, 0)
            self._tell(Counter(), decisions[:1], len(decisions))
            text = allowed_text(same)
            return Ruling(
                messages, [], {} if text is None else {message.id: text for message in messages}
            )
        ready: list[Message] = []
        refused: list[Settlement] = []
        allowed: dict[str, str] = {}
        shadowed = 0
        bound: Counter[tuple[str, str]] = Counter()
        latest, text, allow = None, None, Verdict.ALLOW
        for message, decision in zip(messages, decisions, strict=True):
            if decision.verdict is allow:
                ready.append(message)
                if decision is not latest:  # most of a batch share theirs
                    latest, text = decision, allowed_text(decision)
                if text is not None:
                    allowed[message.id] = text
                shadowed += bool(decision.rules)
            else:
                refused.append(_settlement(message, self._placed(message, decision), token))
                if decision.reason is not None:
                    bound[decision.reason.policy, refused[-1].event] += 1
            if decision.rules:
                bound.update((rule.policy, "shadowed") for rule in decision.rules if rule.shadow)
        self._observer.count("shadowed", self._route.name, shadowed)
        self._tell(bound, decisions)
        return Ruling(ready, refused, allowed)

    def _placed(self, message: Message, decision: Decision) -> Decision:
        policies = self._policies
        return decision if policies is None else policies.place_in_line(message, decision)

    def _tell(
        self, bound: Counter[tuple[str, str]], decisions: Sequence[Decision], each: int = 1
    ) -> None:
        """Report once per batch which policies deferred or refused, and which applied to sent
        messages.

        `each`: the number of messages that every decision stands for.
        """
        for (policy, verdict), number in bound.items():
            self._observer.bound(policy, verdict, number)
        for asked, number in Counter(decision.asked for decision in decisions).items():
            for policy in asked:
                self._observer.bound(policy, "allowed", number * each)


def _allowed_alike(decisions: Sequence[Decision]) -> Decision | None:
    """The decision about all of them, when it is one and lets them go without a word of shadows."""
    first = decisions[0]
    if first.verdict is not Verdict.ALLOW or first.rules:
        return None
    return first if all(decision is first for decision in decisions) else None


def _settlement(message: Message, decision: Decision, token: int) -> Settlement:
    """DEFER: back into the store until then. BLOCK: the end, with the reason."""
    policy, detail = "", ""
    if decision.reason is not None:
        policy, detail = decision.reason.policy, decision.reason.detail
    before = message.decided
    waited = before is not None and before.until == message.due
    decided = Decided(
        decision.verdict,
        policy,
        detail,
        decision.until,
        before.since if waited and before is not None else message.due,
        0 if before is None else before.missed,
    )
    if decision.verdict is Verdict.DEFER:
        decided = replace(decided, missed=message.attempt - message.attempt_floor - 1)
        return Settlement(
            message=message,
            token=token,
            state=State.SCHEDULED,
            due=decision.until,
            event="deferred",
            refund=True,
            decided=decided,
        )
    return Settlement(
        message=message,
        token=token,
        state=State.BLOCKED,
        event="blocked",
        error=f"{policy}: {detail}",
        refund=True,
        decided=decided,
    )


def _refuse(message: Message, token: int, route: Route, now: int) -> Settlement | None:
    if message.expires is not None and message.expires <= now:
        late = expired(message, now) if message.expires <= message.due else None
        if late is not None:  # put off by its sender until it was too late: a decision, not a delay
            return _settlement(message, late, token)
        return Settlement(
            message=message, token=token, state=State.EXPIRED, event="expired", refund=True
        )
    if message.attempt - message.attempt_floor > route.max_attempts:
        # Only a worker that died with it, again and again, gets a message this far.
        return Settlement(
            message=message,
            token=token,
            state=State.DEAD,
            event="dead",
            error=f"lease lost on {route.max_attempts} attempts",
            refund=True,
            unsure=True,
        )
    return None
