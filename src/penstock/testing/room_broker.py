"""The reference of a room that other programs write, in plain Python.

Brokers line members up in WAITING, write their records, and release slots; a step promotes. Redis's
Lua is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.room import RoomSettings
from penstock.model.room_admission import (
    LATE_RECORD_MS,
    LATE_USER_MS,
    MARK_EVERY_MS,
    MARK_MOST,
    RECORD_GRACE_MS,
    SCAN_MOST,
    SCAN_STEP,
    admissible,
    awaits_record,
    earn,
    is_late,
    next_credit_at,
)

Members = list[tuple[str, int]]
"""Users with their scores, in the order of the line."""


@dataclass(frozen=True)
class Record:
    """WAITING_QUEUE_INDEX_RECORD of one user."""

    instance: str
    joined: int | None = None
    """Epoch milliseconds; None if the record has none."""


@dataclass(frozen=True)
class Promoted:
    """One entry of the stream ENTRY."""

    user: str
    promoted_at: str
    """The member's score as text."""
    instance: str


@dataclass
class _Step:
    """The members that one step found in the line."""

    chosen: Members = field(default_factory=list)
    passed_over: int = 0
    record_due: int | None = None
    unread: bool = False


@dataclass
class BrokerRoom:
    """One room: the brokers' writes and the promotions made from them."""

    settings: RoomSettings
    in_use: int = 0
    scores: dict[str, int] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)
    unrecorded: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Member → (moment it was found without a record, its score then)."""
    late: dict[str, int] = field(default_factory=dict)
    """Promoted user → until when a late record, or an entry in the users, is removed."""
    promoted: dict[str, int] = field(default_factory=dict)
    marked: int = 0
    credit: int = 0
    credit_at: int = 0

    def promote(self, now: int, limit: int) -> tuple[list[Promoted], int | None]:
        """The admitted users, in order, and the moment at which time alone changes something."""
        self._remove_late(now)
        self.in_use = max(0, self.in_use)
        step, count = _Step(), self._count(now, limit)
        left = len(self.scores)
        if count > 0:
            step = self._first_who_may_go(count, now)
            left = 0 if step.unread else left - step.passed_over
        admitted = [self._admit(user, score, now) for user, score in step.chosen]
        rate = self.settings.admit_rate
        if rate is not None and admitted:
            credit = earn(rate, self.credit, self.credit_at, now)
            self.credit, self.credit_at = credit - len(admitted) * rate.per, now
        self._mark_ahead(now)
        return admitted, self._look_at(step, left - len(admitted), now)

    def _count(self, now: int, limit: int) -> int:
        rate = self.settings.admit_rate
        tokens = None
        if rate is not None:
            tokens = earn(rate, self.credit, self.credit_at, now) // rate.per
        return admissible(self.settings.capacity, self.in_use, len(self.scores), tokens, limit)

    def _line(self) -> Members:
        return sorted(self.scores.items(), key=lambda member: (member[1], member[0]))

    def _first_who_may_go(self, count: int, now: int) -> _Step:
        step, line = _Step(), self._line()
        first, width = 0, count
        while len(step.chosen) < count and first < SCAN_MOST:
            part = line[first : first + width]
            found = self._found(part, now)
            for user, score in part:
                if len(step.chosen) == count:
                    break
                if user in found and awaits_record(found[user], now):
                    step.passed_over += 1
                    due = found[user] + RECORD_GRACE_MS
                    step.record_due = min(due, step.record_due or due)
                else:
                    step.chosen.append((user, score))
            if len(part) < width:
                return step
            first, width = first + width, SCAN_STEP
        step.unread = len(step.chosen) < count
        return step

    def _found(self, members: Members, now: int) -> dict[str, int]:
        """When each member without a record was first found so, with the same score."""
        for user, score in members:
            if user not in self.records and self.unrecorded.get(user, (0, None))[1] != score:
                self.unrecorded[user] = now, score
        return {user: self.unrecorded[user][0] for user, _ in members if user not in self.records}

    def _admit(self, user: str, score: int, now: int) -> Promoted:
        record = self.records.pop(user, None)
        if record is None or user not in self.users:
            self.late[user] = now + (LATE_RECORD_MS if record is None else LATE_USER_MS)
        self.users.discard(user)
        self.unrecorded.pop(user, None)
        del self.scores[user]
        self.promoted[user] = now
        self.in_use += 1
        return Promoted(user, str(score), "unknown" if record is None else record.instance)

    def _mark_ahead(self, now: int) -> None:
        if len(self.records) < len(self.scores) and now - self.marked >= MARK_EVERY_MS:
            self.marked = now
            self._found(self._line()[: min(self.settings.capacity, MARK_MOST)], now)

    def _look_at(self, step: _Step, left: int, now: int) -> int | None:
        if self.in_use >= self.settings.capacity:
            return None
        moments = [] if step.record_due is None else [step.record_due]
        rate = self.settings.admit_rate
        if rate is not None and left > 0:
            credit = earn(rate, self.credit, self.credit_at, now)
            moments.append(next_credit_at(rate, credit, now))
        return min(moments, default=None)

    def _remove_late(self, now: int) -> None:
        self.late = {user: until for user, until in self.late.items() if until > now}
        for user in self.late.keys() - self.scores.keys():
            record = self.records.get(user)
            if is_late(None if record is None else record.joined, self.promoted[user]):
                self.records.pop(user, None)
                self.users.discard(user)
