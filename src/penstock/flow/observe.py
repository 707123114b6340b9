"""OBSERVE: counters and the lateness histogram, touched once a batch and read by telemetry;
whether the store answers, without which a process claims nothing and keeps no lease."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.model.errors import StoreUnavailable
from penstock.model.lateness import Lateness
from penstock.ports.store import MessageStore
from penstock.ports.tracer import Tracer

log = logging.getLogger("penstock.store")

Listener: TypeAlias = Callable[[str, str, int], None]

CALL_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the buckets of store calls; one more bucket holds the rest."""
_LOGGED = {"put": "accepted", "claim": "released"}
"""Calls whose failure and recovery are logged, and the verb for the log line."""


class StoreCalls:
    """How long one kind of store call took until the answer, and how many calls failed."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(CALL_SECONDS) + 1)
        self.seconds = 0.0
        self.errors = 0

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(CALL_SECONDS, seconds)] += 1
        self.seconds += seconds


class _Asking:
    """Measures one call of the store; a class, since a generator would cost too much."""

    __slots__ = ("_began", "_kind", "_observer")

    def __init__(self, observer: Observer, kind: str) -> None:
        self._observer = observer
        self._kind = kind
        self._began = observer.timer()

    def __enter__(self) -> None:
        """Do nothing: the time counts from construction."""

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if exc is None:
            self._observer.answered(self._kind, self._began)
        elif isinstance(exc, StoreUnavailable):
            self._observer.store_call_failed(self._kind, self._began, exc)


class Observer:
    """Counts what this process did since it started, by stage and route."""

    def __init__(self, timer: Callable[[], float] = float) -> None:
        """`timer` returns seconds, to measure store calls by; without one every duration is 0."""
        self.timer = timer
        self.counts: Counter[tuple[str, str]] = Counter()
        self.visitors: Counter[str] = Counter()
        """Stage of a visit → visitors of all waiting rooms: there may be any number of rooms."""
        self.lateness: dict[str, Lateness] = {}
        self.sends: dict[str, Lateness] = {}
        """Route → how long sends took, each counted with its messages."""
        self.store: dict[str, StoreCalls] = {}
        """Kind of call → durations and failures."""
        self.policies: Counter[tuple[str, str]] = Counter()
        """(policy, allowed | deferred | blocked | shadowed) → messages."""
        self.tracer: Tracer | None = None
        """Records spans; None: spans are not recorded."""
        self._listeners: list[Listener] = []
        self._away: dict[str, float] = {}
        """Kind of call → since when the store does not answer it."""

    @property
    def traces(self) -> bool:
        """True if spans are recorded."""
        return self.tracer is not None and self.tracer.is_on

    def count(self, stage: str, route: str, number: int = 1) -> None:
        if number:
            self.counts[stage, route] += number
            for listener in self._listeners:
                listener(stage, route, number)

    def visited(self, stage: str, number: int = 1) -> None:
        """Count visitors of waiting rooms that passed this stage."""
        if number:
            self.visitors[stage] += number

    def late(self, route: str, lates: Sequence[int]) -> None:
        late = self.lateness.get(route) or self.lateness.setdefault(route, Lateness())
        if len(lates) == 1:
            late.put(lates[0], 1)
        else:
            late.add(lates)

    def sent(self, route: str, millis: int, number: int) -> None:
        """Record how many milliseconds a send of so many messages took, whatever its outcome."""
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
            log.info("the store is back, messages are %s again after %.1f s", _LOGGED[kind], gone)

    def store_call_failed(self, kind: str, began: float, why: StoreUnavailable) -> None:
        """Count a failed store call; log the first of an outage."""
        self.store.setdefault(kind, StoreCalls()).errors += 1
        if kind in _LOGGED and kind not in self._away:
            self._away[kind] = began
            log.warning("store away, nothing is %s: %s", _LOGGED[kind], why)

    def bound(self, policy: str, verdict: str, number: int = 1) -> None:
        """A policy decided of so many messages."""
        self.policies[policy, verdict] += number

    def listen(self, listener: Listener) -> None:
        """Call the listener with (stage, route, number) once per batch."""
        self._listeners.append(listener)

    def total(self, stage: str) -> int:
        return sum(number for (name, _), number in self.counts.items() if name == stage)


class Contact:
    """When the store last answered this worker, on any call.

    On a link where requests arrive and answers do not, every claim leases messages that no worker
    sends, and every extension keeps a lease whose end cannot be reported. Repeated without end,
    they would keep these messages from every other process.
    """

    def __init__(self, store: MessageStore, lease: int) -> None:
        self._store = store
        self._clock = store.clock
        self._lease = lease
        self._answered_at = self._clock.now()

    def answered(self, asked_at: int) -> None:
        """The store has answered a call that was made then, or a part of it has."""
        self._answered_at = asked_at

    def is_recent(self, now: int) -> bool:
        """True if the store answered within the last lease."""
        return 0 <= now - self._answered_at < self._lease

    async def ensure(self) -> int:
        """Check, before a call that must not be repeated without an answer, that the store answers.

        Returns the current moment. If the store answered within the last lease nothing is called.
        Otherwise a reap as of the epoch, by which no lease has ended, must be answered first: it
        changes nothing, and any available part of the store answers it. StoreUnavailable: none did.
        """
        now = self._clock.now()
        if self.is_recent(now):
            return now
        await self._store.reap(0, 1)
        self._answered_at = self._clock.now()
        return self._answered_at
