"""OBSERVE: counters and the lateness histogram, touched once a batch and read by telemetry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from penstock.model.lateness import Lateness

Listener: TypeAlias = Callable[[str, str, int], None]


class Observer:
    """What this process did since it started, by stage and route."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.lateness: dict[str, Lateness] = {}
        self.policies: Counter[tuple[str, str]] = Counter()
        """(policy, allowed | deferred | blocked | shadowed) → messages."""
        self._listeners: list[Listener] = []

    def count(self, stage: str, route: str, number: int = 1) -> None:
        if number:
            self.counts[stage, route] += number
            for listener in self._listeners:
                listener(stage, route, number)

    def late(self, route: str, lates: Iterable[int]) -> None:
        self.lateness.setdefault(route, Lateness()).add(lates)

    def bound(self, policy: str, verdict: str, number: int = 1) -> None:
        """A policy decided of so many messages."""
        self.policies[policy, verdict] += number

    def listen(self, listener: Listener) -> None:
        """Be told (stage, route, number) once a batch."""
        self._listeners.append(listener)

    def total(self, stage: str) -> int:
        return sum(number for (name, _), number in self.counts.items() if name == stage)
