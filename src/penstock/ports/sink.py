"""The seam to whatever receives messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.model.message import Message
from penstock.model.outcome import SendOutcome


class Sink(Protocol):
    """Takes batches; says of each message what became of it."""

    @property
    def name(self) -> str:
        """The sink's address without secrets."""
        ...

    @property
    def max_batch(self) -> int:
        """How many messages one send takes; 1: each message is sent and settled by itself."""
        ...

    @property
    def concurrency(self) -> int:
        """Messages in flight that suit it when the route does not say."""
        ...

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        """Send in order; one outcome each. A crash may repeat the call: same id, higher attempt.

        Delivered only on the receiver's own acknowledgement. Raises nothing for what the other
        side does; whatever is raised counts as Retry for the whole batch.
        """
        ...

    async def check(self) -> None:
        """Raise PenstockError when the other side cannot be reached; cheap."""
        ...

    async def close(self) -> None: ...
