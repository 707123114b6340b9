"""OBSERVE: counters and the lateness histogram, touched once a batch and read by telemetry;
whether the store answers, without which a process claims nothing and keeps no lease."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from penstock.model.errors import StoreUnavailable
from penstock.model.lateness import Lateness
from penstock.ports.store import MessageStore
from penstock.ports.tracer import Tracer

log = logging.getLogger("penstock.store")

Listener: TypeAlias = Callable[[str, str, int], None]

CALL_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the buckets of store calls; one more bucket holds the rest."""
_TOLD = {"put": "accepted", "claim": "released"}
"""Calls whose failure and whose return are worth a line in the log, and what they stand for."""


class StoreCalls:
    """How long calls of one kind took until the store answered, and how many it did not."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(CALL_SECONDS) + 1)
        self.seconds = 0.0
        self.errors = 0

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(CALL_SECONDS, seconds)] += 1
        self.seconds += seconds


class _Asking:
    """One call of the store. A class, since a generator would cost as much as a small call."""

    __slots__ = ("_began", "_kind", "_observer")

    def __init__(self, observer: Observer, kind: str) -> None:
        self._observer = observer
        self._kind = kind

    def __enter__(self) -> None:
        self._began = self._observer.timer()

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if exc is None:
            self._observer.answered(self._kind, self._began)
        elif isinstance(exc, StoreUnavailable):
            self._observer.store_call_failed(self._kind, self._began, exc)


class Observer:
    """What this process did since it started, by stage and route."""

    def __init__(self, timer: Callable[[], float] = float) -> None:
        """`timer` tells seconds to measure the store by; without one nothing takes any time."""
        self.timer = timer
        self.counts: Counter[tuple[str, str]] = Counter()
        self.visitors: Counter[str] = Counter()
        """Stage of a visit → visitors of all waiting rooms: there may be any number of rooms."""
        self.lateness: dict[str, Lateness] = {}
        self.sends: dict[str, Lateness] = {}
        """Route → how long sends took, each counted with its messages."""
        self.store: dict[str, StoreCalls] = {}
        """Kind of call → what came of it."""
        self.policies: Counter[tuple[str, str]] = Counter()
        """(policy, allowed | deferred | blocked | shadowed) → messages."""
        self.tracer: Tracer | None = None
        """Records spans; None: nobody does."""
        self._listeners: list[Listener] = []
        self._away: dict[str, float] = {}
        """Kind of call → since when the store does not answer it."""

    @property
    def traces(self) -> bool:
        """Whether spans are recorded."""
        return self.tracer is not None and self.tracer.is_on

    def count(self, stage: str, route: str, number: int = 1) -> None:
        if number:
            self.counts[stage, route] += number
            for listener in self._listeners:
                listener(stage, route, number)

    def visited(self, stage: str, number: int = 1) -> None:
        """So many visitors of waiting rooms passed this stage."""
        if number:
            self.visitors[stage] += number

    def late(self, route: str, lates: Iterable[int]) -> None:
        late = self.lateness.get(route) or self.lateness.setdefault(route, Lateness())
        late.add(lates)

    def sent(self, route: str, millis: int, number: int) -> None:
        """A send of so many messages took so long, whatever came of it."""
        took = self.sends.get(route) or self.sends.setdefault(route, Lateness())
        took.put(millis, number)

    def asking(self, kind: str) -> _Asking:
        """Around one call of the store: put, claim, settle, amend, reap …"""
        return _Asking(self, kind)

    def answered(self, kind: str, began: float) -> None:
        """The store has answered a call of that kind."""
        ended = self.timer()
        calls = self.store.get(kind) or self.store.setdefault(kind, StoreCalls())
        calls.took(ended - began)
        if self._away and kind in self._away:
            gone = ended - self._away.pop(kind)
            log.info("the store is back, messages are %s again after %.1f s", _TOLD[kind], gone)

    def store_call_failed(self, kind: str, began: float, why: StoreUnavailable) -> None:
        """Count a failed store call; log the first of an outage."""
        self.store.setdefault(kind, StoreCalls()).errors += 1
        if kind in _TOLD and kind not in self._away:
            self._away[kind] = began
            log.warning("store away, nothing is %s: %s", _TOLD[kind], why)

    def bound(self, policy: str, verdict: str, number: int = 1) -> None:
        """A policy decided of so many messages."""
        self.policies[policy, verdict] += number

    def listen(self, listener: Listener) -> None:
        """Be told (stage, route, number) once a batch."""
        self._listeners.append(listener)

    def total(self, stage: str) -> int:
        return sum(number for (name, _), number in self.counts.items() if name == stage)


class Contact:
    """When the store last answered this worker, whatever it was asked.

    On a link where requests arrive and answers do not, every claim leases messages that nobody
    sends, and every extension keeps a lease whose end cannot be reported. Repeated for ever, they
    would keep these messages from every other process.
    """

    def __init__(self, store: MessageStore, lease: int) -> None:
        self._store = store
        self._clock = store.clock
        self._lease = lease
        self._answered_at = self._clock.now()

    def answered(self, asked_at: int) -> None:
        """The store has answered a call that was made then, or a part of it has."""
        self._answered_at = asked_at

    async def ensure(self) -> int:
        """Before a call that must not be repeated for ever without an answer; the moment then.

        Nothing is asked if the store answered within the last lease. Otherwise a reap as of the
        epoch, by which no lease has ended, must be answered first: it changes nothing, and any
        part of the store that is there answers it. StoreUnavailable: none did.
        """
        now = self._clock.now()
        if 0 <= now - self._answered_at < self._lease:
            return now
        await self._store.reap(0, 1)
        self._answered_at = self._clock.now()
        return self._answered_at
