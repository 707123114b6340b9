"""The seam to a recorder of spans; without one, nothing is recorded and nothing imported."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.model.draft import Draft
from penstock.model.message import Message


class Tracer(Protocol):
    @property
    def is_on(self) -> bool:
        """True if spans are recorded: while they are not, no call needs to be made."""
        ...

    def intake(self, drafts: Sequence[Draft]) -> AbstractContextManager[None]:
        """Around storing a batch; drafts without a trace of their own get this span's."""
        ...

    def deliver(
        self, route: str, sink: str, batch: Sequence[Message]
    ) -> AbstractContextManager[None]:
        """Trace the sending of a batch: a trace of its own, linked to those that scheduled it."""
        ...
