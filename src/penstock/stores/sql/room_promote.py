"""PROMOTE: the steps of many rooms in one transaction.

Each room takes `room_steps.attend`, `end` and `admit` in this order. Rows that all rooms need are
read and written together; only rooms that admit a visitor or end a session cost a statement of
their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, overload

from penstock.model import room_steps as steps
from penstock.model.room_admission import ATTEND_MS
from penstock.model.room_steps import Admission, Moments
from penstock.model.ticket import Promotion, Ticket, TicketState
from penstock.stores.sql import room_rows as rows
from penstock.stores.sql.room_rows import HOLDING, WAITING, Surveyed
from penstock.stores.sql.tx import Row, Tx

MOST_A_CALL = 1_000
"""Visitors admitted by one call: later rooms must be promoted again, so that the loop stays
free.
"""

_First: TypeAlias = tuple[int, str, int, str, int]
"""Number, visitor, joined, instance, and the id of the row."""


class Admitted(Sequence[Ticket]):
    """The tickets of admitted visitors, made when they are read: most callers only count them."""

    def __init__(self, admission: Admission, first: Mapping[str, Sequence[_First]]) -> None:
        self._admission = admission
        self._first = first

    def __len__(self) -> int:
        return len(self._admission.lanes)

    @overload
    def __getitem__(self, index: int) -> Ticket: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Ticket]: ...

    def __getitem__(self, index: int | slice) -> Ticket | Sequence[Ticket]:
        return self._tickets[index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    @cached_property
    def _tickets(self) -> list[Ticket]:
        lines = {lane: iter(first) for lane, first in self._first.items()}
        return [
            self._admission.ticket(_waiting(lane, next(lines[lane])))
            for lane in self._admission.lanes
        ]


def _waiting(lane: str, first: _First) -> Ticket:
    number, user, joined, instance, _ = first
    state = TicketState.WAITING
    return Ticket(
        user=user, state=state, lane=lane, number=number, joined=joined, instance=instance
    )


class _Room:
    """The state of one room between the steps."""

    __slots__ = ("admission", "first", "id", "lanes", "moments", "over", "record", "silent")

    def __init__(self, found: Surveyed) -> None:
        self.id, self.record, self.lanes, self.moments, _ = found
        self.over = self.silent = 0
        self.admission: Admission | None = None
        self.first: dict[str, list[_First]] = {}

    @property
    def admitted(self) -> int:
        return 0 if self.admission is None else len(self.admission.lanes)


def promote(tx: Tx, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
    """One promotion each, in order; an empty one for a room that does not exist."""
    found = rows.survey(tx, names)
    left = MOST_A_CALL
    done: dict[str, Promotion] = {}
    stepped = []
    for name in dict.fromkeys(names):
        if name not in found:
            continue
        if left <= 0:
            done[name] = Promotion(room=name, more=True)
            continue
        room = _step(tx, found[name], now, limit)
        left -= room.admitted
        stepped.append(room)
    _write(tx, stepped)
    due = []
    for room in stepped:
        promotion = done[room.record.room.name] = _finish(room, now, limit)
        due.append((rows.tally_text(room.record), _due(room, promotion, now), room.id))
    tx.many("save_tally", due)
    return [done.pop(name) if name in done else Promotion(room=name) for name in names]


def _step(tx: Tx, found: Surveyed, now: int, limit: int) -> _Room:
    room = _Room(found)
    if found.forget is not None and found.forget <= now:
        tx.execute("forget_tickets", (room.id, now, limit))
    room.record = steps.attend(room.record, now)
    _expire(tx, room, now, limit)
    step = steps.admit(room.record, room.lanes, now, limit)
    if step.answer is not None:
        room.record, room.admission = step.record, step.answer
        order = step.answer.lanes
        wanted = Counter(order) if len(room.lanes) > 1 else {order[0]: len(order)}
        for lane, number in wanted.items():
            room.first[lane] = tx.query("first_in_line", (room.id, lane, number))
            room.lanes[lane] -= number
    return room


def _expire(tx: Tx, room: _Room, now: int, limit: int) -> None:
    """End the tickets whose time is over; the moments are read again then."""
    seen, ends = room.moments
    cutoff = steps.silence(room.record, now)
    over: list[Ticket] = []
    silent: list[Ticket] = []
    if ends is not None and ends <= now:
        over = _over(tx, room.id, HOLDING, now, limit)
    if cutoff is not None and seen is not None and seen <= cutoff:
        silent = _over(tx, room.id, WAITING, cutoff, limit)
        rows.leave_line(tx, room.id, silent)
        for ticket in silent:
            room.lanes[ticket.lane] -= 1
    room.over, room.silent = len(over), len(silent)
    if over or silent:
        _, room.record, ended = steps.end(room.record, over + silent, TicketState.EXPIRED)
        rows.put_tickets(tx, room.id, ended, now)
        room.moments = rows.moments(tx, [room.id])[room.id]


def _over(tx: Tx, room: int, kind: int, until: int, limit: int) -> list[Ticket]:
    return [rows.to_ticket(row) for row in tx.query("over", (room, kind, until, limit))]


def _write(tx: Tx, rooms: Sequence[_Room]) -> None:
    """Everybody let in has a slot and is out of the line."""
    heads = rows.Heads()
    tickets: list[Row] = []
    for room in rooms:
        admission = room.admission
        if admission is None:
            continue
        change = (admission.now, admission.until, admission.pass_prefix)
        for lane, first in room.first.items():
            heads.leave(room.id, lane, [row[0] for row in first], room.lanes[lane])
            tickets += [(*change, *run) for run in _in_a_row([row[4] for row in first])]
        if admission.until is not None:
            seen, ends = room.moments
            ends = admission.until if ends is None else min(ends, admission.until)
            room.moments = Moments(seen, ends)
    if tickets:
        tx.many("admit", tickets)
        heads.save(tx)
    _see_again(tx, rooms)


def _in_a_row(ids: list[int]) -> list[tuple[int, int]]:
    """The first and the last of each stretch without a gap."""
    ids.sort()
    first = before = ids[0]
    if ids[-1] - first == len(ids) - 1:  # each is there once: the usual case
        return [(first, ids[-1])]
    stretches = []
    for number in ids[1:]:
        if number != before + 1:
            stretches.append((first, before))
            first = number
        before = number
    stretches.append((first, before))
    return stretches


def _see_again(tx: Tx, rooms: Sequence[_Room]) -> None:
    """Find the longest silent waiter again in rooms where a visitor left the line."""
    changed = [
        room
        for room in rooms
        if room.admission is not None and room.record.room.settings.wait_grace is not None
    ]
    if changed:
        found = rows.moments(tx, [room.id for room in changed])
        for room in changed:
            room.moments = found[room.id]


def _finish(room: _Room, now: int, limit: int) -> Promotion:
    is_waiting = any(room.lanes.values())
    return Promotion(
        room=room.record.room.name,
        admitted=() if room.admission is None else Admitted(room.admission, room.first),
        expired=room.over + room.silent,
        more=limit in (room.over, room.silent, room.admitted),
        look_at=steps.look_at(room.record, is_waiting, room.moments, now),
    )


def _due(room: _Room, promotion: Promotion, now: int) -> int | None:
    """The next moment is known, but a room with a line is attended to all the same."""
    if not any(room.lanes.values()):
        return promotion.look_at
    attend = now + ATTEND_MS
    return attend if promotion.look_at is None else min(promotion.look_at, attend)
