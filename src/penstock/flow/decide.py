"""DECIDE: of what was claimed, what may go out now; the rest is settled with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.message import Message
from penstock.model.outcome import Claim, Settlement
from penstock.model.route import Route
from penstock.model.state import State


def decide(claim: Claim, route: Route, now: int) -> tuple[Sequence[Message], list[Settlement]]:
    """(to send, settled without a send). In the order they were claimed."""
    refused = [
        settlement
        for message in claim.messages
        if (settlement := _refuse(message, claim.token, route, now)) is not None
    ]
    if not refused:
        return claim.messages, refused
    ids = {settlement.message.id for settlement in refused}
    return [message for message in claim.messages if message.id not in ids], refused


def _refuse(message: Message, token: int, route: Route, now: int) -> Settlement | None:
    if message.expires is not None and message.expires <= now:
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
        )
    return None
