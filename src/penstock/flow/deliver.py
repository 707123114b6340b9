"""DELIVER: send a batch to the route's sink and decide for each message how its lease ends."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from penstock.flow.observe import Observer
from penstock.model.answers import storable
from penstock.model.isolation import isolate
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Delivered, Retry, SendOutcome, Settlement
from penstock.model.route import Route
from penstock.model.state import State
from penstock.model.trace import correlation_of
from penstock.ports.sink import Sink
from penstock.time.clock import Clock

log = logging.getLogger("penstock.deliver")

MAX_ERROR = 1_000
"""Characters of an error that are stored."""
MAX_RETRY_AFTER = 86_400.0
"""Seconds: a longer Retry-After is taken as this."""

_DELIVERED = State.DELIVERED
_INTERRUPTED = Retry("interrupted by shutdown", after=0.0, interrupted=True)
_TOO_LATE = Retry("the lease ended before it was sent by itself", after=0.0, interrupted=True)


async def send_part(sink: Sink, batch: Sequence[Message]) -> Sequence[SendOutcome]:
    """Send the batch and return one outcome per message, however many the sink returned."""
    outcomes = await sink.send(batch)
    if len(outcomes) == len(batch):
        return outcomes
    error = f"sink answered {len(outcomes)} outcomes for {len(batch)} messages"
    return [Retry(error, unsure=True)] * len(batch)


def blame(sink: Sink, exc: Exception) -> SendOutcome:
    """The outcome that an exception means for the message it belongs to."""
    log.error(
        "sink %s raised an unexpected error; its messages are tried again", sink.name, exc_info=exc
    )
    return Retry(f"{type(exc).__name__}: {exc}", unsure=True)


class Sent(NamedTuple):
    """How the leases of a batch end, and the sink's outcome for each message."""

    settlements: list[Settlement]
    outcomes: Sequence[SendOutcome]
    at: int
    """When the send ended."""


class Interrupted(asyncio.CancelledError):
    """A send was cancelled; carries what is known of it, for another task to settle."""

    def __init__(self, sent: Sent) -> None:
        super().__init__()
        self.sent = sent


class Deliver:
    """Sends one route's messages. Never raises because of the receiver."""

    def __init__(
        self, route: Route, sink: Sink, clock: Clock, chance: random.Random, observer: Observer
    ) -> None:
        self._route = route
        self._sink = sink
        self._clock = clock
        self._chance = chance
        self._observer = observer

    def batches(self, messages: Sequence[Message]) -> list[Sequence[Message]]:
        size = self._sink.max_batch
        if len(messages) <= size:
            return [messages] if messages else []
        return [messages[i : i + size] for i in range(0, len(messages), size)]

    async def send(
        self,
        batch: Sequence[Message],
        token: int,
        allowed: Mapping[str, str],
        holds: Callable[[int], bool],
        began: int,
    ) -> Sent:
        """Send the batch and return the outcomes; raise Interrupted with them if cancelled
        meanwhile.

        `allowed`: message id → the policies' answer. `began`: now. `holds`: whether this process
        still has the lease at a moment, since a batch that is halved takes longer than one send.
        """
        outcomes: list[SendOutcome] = []

        async def send(part: Sequence[Message]) -> Sequence[SendOutcome]:
            if len(part) < len(batch) and not holds(self._clock.now()):
                return [_TOO_LATE] * len(part)  # another may have sent these, in a higher attempt
            return await self._send(part)

        try:
            try:
                outcomes += await self._send(batch)
            except Exception as exc:  # noqa: BLE001 - halved until the message to blame is alone
                await isolate(batch, send, partial(blame, self._sink), failed=exc, results=outcomes)
        except asyncio.CancelledError as exc:
            # The deadline of a shutdown: it may have arrived, so the attempt counts.
            outcomes += [_INTERRUPTED] * (len(batch) - len(outcomes))
            raise Interrupted(self._ended(batch, token, outcomes, allowed)) from exc
        sent = self._ended(batch, token, outcomes, allowed)
        self._observer.sent(self._route.name, max(0, sent.at - began), len(batch))
        return sent

    async def _send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        tracer = self._observer.tracer
        if tracer is None or not tracer.is_on:
            return await send_part(self._sink, batch)
        with tracer.deliver(self._route.name, self._sink.name, batch):
            return await send_part(self._sink, batch)

    def _ended(
        self,
        batch: Sequence[Message],
        token: int,
        outcomes: Sequence[SendOutcome],
        allowed: Mapping[str, str],
    ) -> Sent:
        now = self._clock.now()
        settlements = self._settlements(batch, token, outcomes, allowed, now)
        if outcomes.count(DELIVERED) < len(outcomes):
            _log_failures(self._route.name, settlements, outcomes)
        return Sent(settlements, outcomes, now)

    def _settlements(
        self,
        batch: Sequence[Message],
        token: int,
        outcomes: Sequence[SendOutcome],
        allowed: Mapping[str, str],
        now: int,
    ) -> list[Settlement]:
        if allowed:
            return [
                Settlement(message, token, _DELIVERED, "delivered", allowed=allowed.get(message.id))
                if type(outcome) is Delivered
                else replace(
                    self._failed(message, token, outcome, now), allowed=allowed.get(message.id)
                )
                for message, outcome in zip(batch, outcomes, strict=True)
            ]
        return [
            Settlement(message, token, _DELIVERED, "delivered")
            if type(outcome) is Delivered
            else self._failed(message, token, outcome, now)
            for message, outcome in zip(batch, outcomes, strict=True)
        ]

    def _failed(self, message: Message, token: int, outcome: SendOutcome, now: int) -> Settlement:
        error = storable(outcome.text, MAX_ERROR) if isinstance(outcome, Retry | Dead) else ""
        if not isinstance(outcome, Retry):
            return Settlement(
                message=message, token=token, state=State.DEAD, event="dead", error=error
            )
        failures = message.attempt - message.attempt_floor
        state, event, due = State.SCHEDULED, "retry", None
        if failures >= self._route.max_attempts and not outcome.interrupted:
            state, event = State.DEAD, "dead"
            error = f"{error} (attempt {failures} of {self._route.max_attempts})"
        else:
            due = now + self._wait(outcome, failures)
            if message.expires is not None and due >= message.expires:
                state, event, due = State.EXPIRED, "expired", None
        return Settlement(
            message=message,
            token=token,
            state=state,
            due=due,
            event=event,
            error=error,
            unsure=outcome.may_have_arrived,
        )

    def _wait(self, outcome: Retry, failures: int) -> int:
        if outcome.after is None:
            return self._route.backoff.wait(failures, self._chance)
        return int(min(max(0.0, outcome.after), MAX_RETRY_AFTER) * 1000 + 0.999)


_FATE = {
    "retry": "are sent again after a pause",
    "dead": "are dead letters now (penstock dead list)",
    "expired": "expire before they could be sent again",
}


def _log_failures(
    route: str, settlements: Sequence[Settlement], outcomes: Sequence[SendOutcome]
) -> None:
    """Log one line per batch and kind of failure, with an example; the log thins out repeats."""
    failed = [
        (settlement, outcome)
        for settlement, outcome in zip(settlements, outcomes, strict=True)
        if isinstance(outcome, Retry | Dead)
    ]
    for event in sorted({settlement.event for settlement, _ in failed}):
        alike = [pair for pair in failed if pair[0].event == event]
        example, outcome = alike[0]
        error = storable(outcome.error, MAX_ERROR)
        log.warning(
            "route %s: %d of %d messages failed and %s, such as %s: %s",
            route,
            len(alike),
            len(settlements),
            _FATE[event],
            example.message.id,
            error,
            extra={
                "route": route,
                "message_id": example.message.id,
                "attempt": example.message.attempt,
                "correlation_id": correlation_of(example.message.headers),
                "same": f"{route} {event} {error}",  # whichever the example
            },
        )
