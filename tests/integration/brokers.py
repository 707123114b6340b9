"""What tests of brokers share: a route under load, told of a broker by its URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.model.draft import Draft
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, SendOutcome
from penstock.ports.sink import Sink
from penstock.settings import given
from penstock.wiring import open_parts, open_worker

DUE = 1_893_456_000_000
PATIENCE = 300.0


def message(name: str, payload: bytes = b"{}", **fields: object) -> Message:
    values: dict[str, object] = {"key": "k", "due": DUE, "attempt": 1, **fields}
    return Message(id=name, route="r", payload=payload, **values)  # type: ignore[arg-type] # a test's own


async def until_delivered(sink: Sink, messages: Sequence[Message]) -> None:
    """Send as the flow does, again and again, until each one has been acknowledged."""
    left = list(messages)
    async with asyncio.timeout(PATIENCE):
        while left:
            outcomes: Sequence[SendOutcome] = await sink.send(left[: sink.max_batch])
            sent = {m.id for m, o in zip(left, outcomes, strict=False) if o == DELIVERED}
            left = [m for m in left if m.id not in sent]
            if not sent:
                await asyncio.sleep(0.2)


async def through_the_engine(
    sink_url: str, disturb: Callable[[], None], **route: object
) -> set[str]:
    """Accept and release messages all the while the broker is disturbed; the ids accepted."""
    trying = {"backoff": "100ms..500ms", "max_attempts": 1000, "timeout": "3s"}
    settings = given(
        store="sqlite:///:memory:",
        routes={"r": {"sink": sink_url, **trying, **route}},
        worker={"batch_size": 100},
    )
    accepted: set[str] = set()
    async with open_parts(settings) as parts, open_worker(parts) as worker:
        running = asyncio.ensure_future(worker.run())
        try:
            async with asyncio.timeout(PATIENCE):
                disturbing = asyncio.create_task(asyncio.to_thread(disturb))
                while not disturbing.done():
                    ids = [f"m-{len(accepted) + n}" for n in range(20)]
                    await parts.intake.schedule([Draft(id=name, route="r") for name in ids])
                    accepted.update(ids)
                    await asyncio.sleep(0.05)
                await disturbing
                delivered = parts.observer.counts
                while delivered["delivered", "r"] < len(accepted):  # noqa: ASYNC110 - a count
                    await asyncio.sleep(0.05)
        finally:
            worker.stop()
            await running
    return accepted
