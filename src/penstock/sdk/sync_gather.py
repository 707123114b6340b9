"""Messages that threads schedule at the same time share one batch request; without a loop.

A single message is sent alone and at once; `Load` decides how long others wait. One of the waiting
threads, the leader, sends the request of its group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.draft import Draft
from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Receipt
from penstock.sdk.calls import Outcome, in_one_line, is_busy, schedule, schedule_lines
from penstock.sdk.sync_rooms import Send
from penstock.sdk.transport import GATHER_SECONDS, Load

PAUSES = 8
"""Pauses that a leader makes at most while each of them brings more messages."""
PAUSE = 0.0001
UNANSWERED = StoreUnavailable("the thread that asked for this message was interrupted")


def _taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Place:
    """A message that waits for its request, and the signal to its caller."""

    draft: Draft
    line: bytes
    outcome: Outcome | Exception = UNANSWERED
    leads: bool = False
    _news: threading.Lock = field(default_factory=_taken)

    def wake(self) -> None:
        self._news.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait; True if there is an outcome, or this one is the leader."""
        return self._news.acquire(timeout=seconds)


class SyncGather:
    """Sends the messages that the threads of a program schedule."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._load = Load()
        self._waiting: list[_Place] = []
        self._led = False
        """True if there is a leader whose request has not begun."""

    def schedule(self, draft: Draft) -> Receipt:
        """Schedule a message that has its id; raises the error of this one."""
        with self._lock:
            alone = self._load.is_alone and not self._waiting
            if alone:
                self._load.begin(1)
        if alone:
            try:
                return self._send(schedule(draft))
            finally:
                self._end(1)
        outcome = self._gathered(_Place(draft, in_one_line(draft)))
        if is_busy(outcome):  # it alone was refused for now: be patient with it alone
            return self._send(schedule(draft))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _gathered(self, place: _Place) -> Outcome | Exception:
        with self._lock:
            self._waiting.append(place)
            first = len(self._waiting) == 1
            self._appoint()
        try:
            if not (first and place.wait(GATHER_SECONDS)):
                if first:
                    with self._lock:
                        self._appoint(patient=False)
                place.wait()
        except BaseException:
            self._leave(place)
            raise
        if place.leads:
            self._lead()
        return place.outcome

    def _leave(self, place: _Place) -> None:
        """Remove a message whose caller was interrupted: it is not sent, and leads no request."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
                if place.leads:
                    self._led = False
                    self._appoint()

    def _appoint(self, *, patient: bool = True) -> None:
        """Make the first of those that wait the leader, if a request may begin."""
        waiting, load = self._waiting, self._load
        if self._led or not waiting or not load.has_room:
            return
        if load.may_begin(len(waiting)) or not patient:
            self._led = waiting[0].leads = True
            waiting[0].wake()

    def _lead(self) -> None:
        """Carry the call of a group that the caller's own message is the first of."""
        self._gather()
        with self._lock:
            group, self._waiting = self._load.take(self._waiting)
            self._load.begin(len(group))
            self._led = False
            self._appoint()
        outcomes: Sequence[Outcome | Exception]
        try:
            outcomes = self._ask(group)
        except Exception as exc:  # noqa: BLE001 - every caller raises it
            outcomes = [exc] * len(group)
        except BaseException:
            self._answer(group, [place.outcome for place in group])  # each asks alone
            raise
        self._answer(group, outcomes)

    def _gather(self) -> None:
        """Callers that have just been answered ask again within a moment."""
        if self._load.is_alone:
            return
        seen, pauses = 0, PAUSES
        while pauses and len(self._waiting) > seen:
            seen = len(self._waiting)
            pauses -= 1
            time.sleep(PAUSE)

    def _ask(self, group: Sequence[_Place]) -> Sequence[Outcome]:
        if len(group) == 1:
            return [self._send(schedule(group[0].draft))]
        return self._send(schedule_lines([place.line for place in group]))

    def _answer(self, group: Sequence[_Place], outcomes: Sequence[Outcome | Exception]) -> None:
        leader, *followers = zip(group, outcomes, strict=True)
        leader[0].outcome = leader[1]
        for place, outcome in followers:
            place.outcome = outcome
            place.wake()
        self._end(len(group))

    def _end(self, size: int) -> None:
        with self._lock:
            self._load.end(size)
            self._appoint()
