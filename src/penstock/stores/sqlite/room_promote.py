"""PROMOTE, on SQLite: a step of each of many rooms, inside one transaction.

What all rooms need is asked and written together; only those that let somebody in, or in which
something is over, cost a statement of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.model.admission import (
    ATTEND_MS,
    OUTAGE_MS,
    admissible,
    earn,
    next_credit_at,
    silent_before,
)
from penstock.model.room import RoomState
from penstock.model.ticket import Promotion, Ticket, TicketState
from penstock.stores.sqlite import room_line as line
from penstock.stores.sqlite import room_record as records
from penstock.stores.sqlite.room_admitted import Admitted
from penstock.stores.sqlite.room_record import ENDED, HOLDING, WAITING, Moments, Record
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

MOST_A_CALL = 1_000
"""People let in by one call: rooms that come after have to ask again, others want the loop too."""

ADMIT = """
UPDATE room_tickets
SET kind = 1, state = 'ADMITTED', promoted = ?, until = ?, pass = ? || number
WHERE room = ? AND user IN (
  SELECT user FROM room_tickets WHERE room = ? AND lane = ? AND kind = 0
  ORDER BY number, user LIMIT ?)
RETURNING number, user, lane, joined, pass, instance
"""


class Step:
    """One room's step: what it found, and what it has come to."""

    def __init__(self, record: Record, lanes: dict[str, int], moments: Moments) -> None:
        self.record = record
        self.settings = records.settings_of(record.settings)
        self.lanes = lanes
        """Lane → how many wait."""
        self.moments = moments
        self.over = self.silent = 0
        self.admitted: Admitted | None = None

    @property
    def number(self) -> int:
        return 0 if self.admitted is None else len(self.admitted)

    @property
    def waiting(self) -> int:
        return sum(self.lanes.values())


def promote(session: Session, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
    found = records.load_all(session, names)
    steps = _survey(session, list(found.values()))
    left = MOST_A_CALL
    done: dict[str, Promotion] = {}
    for name, step in zip(found, steps, strict=True):
        if left <= 0:
            done[name] = Promotion(room=name, more=True)
            continue
        _attend(session, step, now, limit)
        _expire(session, step, now, limit)
        _admit(session, step, now, limit)
        left -= step.number
    stepped = [step for step in steps if step.record.name not in done]
    _count(session, stepped)
    _see_again(session, stepped)
    for step in stepped:
        done[step.record.name] = _finish(step, now, limit)
    records.save_steps(session, [step.record for step in stepped])
    return [done.pop(name, Promotion(room=name)) for name in names]


def _survey(session: Session, found: Sequence[Record]) -> list[Step]:
    ids = json_array([record.id for record in found])
    lanes = records.lanes_of(session, found, ids)
    moments = records.moments(session, ids)
    return [Step(record, lanes[record.id], moments[record.id]) for record in found]


def _attend(session: Session, step: Step, now: int, limit: int) -> None:
    record = step.record
    forget = step.moments[ENDED]
    if forget is not None and forget <= now:
        session.execute(records.FORGET, (record.id, record.id, now, limit))
    if now - record.attended > OUTAGE_MS:
        record.floor = now
    if now - record.attended >= ATTEND_MS:
        record.attended = now


def _expire(session: Session, step: Step, now: int, limit: int) -> None:
    """Ends what is over; the moments are asked again then."""
    record = step.record
    last_seen, ends, _ = step.moments
    cutoff = silent_before(step.settings, record.floor, now)
    ended = []
    if ends is not None and ends <= now:
        ended = _over(session, record, HOLDING, now, limit)
        step.over = len(ended)
    if cutoff is not None and last_seen is not None and last_seen <= cutoff:
        silent = _over(session, record, WAITING, cutoff, limit)
        step.silent = len(silent)
        ended += silent
        for ticket in silent:
            step.lanes[ticket.lane] -= 1
    if ended:
        records.end(session, record, ended, TicketState.EXPIRED, now)
        step.moments = records.moments(session, json_array([record.id]))[record.id]


def _over(session: Session, record: Record, kind: int, until: int, limit: int) -> list[Ticket]:
    rows = session.execute(records.OVER, (record.id, kind, until, limit)).fetchall()
    return [records.to_ticket(row) for row in rows]


def _admit(session: Session, step: Step, now: int, limit: int) -> None:
    record, settings = step.record, step.settings
    if not step.waiting or record.state_at(now) is not RoomState.OPEN:
        return
    rate = settings.admit_rate
    credit = 0 if rate is None else earn(rate, record.credit, record.credit_at, now)
    tokens = None if rate is None else credit // rate.per
    count = admissible(settings.capacity, record.in_use, step.waiting, tokens, limit)
    if count == 0:
        return
    until = None if settings.claim_ttl is None else now + settings.claim_ttl
    step.admitted = _let_in(session, step, count, now, until)
    for lane, number in Counter(step.admitted.order).items():
        step.lanes[lane] -= number
    record.promoted += count
    record.admitted += count
    record.in_use += count
    flow = record.read_flow()
    flow.add(count, now)
    record.flow = records.to_json(flow)
    if rate is not None:
        record.credit, record.credit_at = credit - count * rate.per, now
    if until is not None:
        seen, held, ended = step.moments
        step.moments = seen, until if held is None else min(held, until), ended


def _let_in(session: Session, step: Step, count: int, now: int, until: int | None) -> Admitted:
    """The next `count` people, each lane in its order, the lanes by their weights."""
    record, lanes = step.record, step.settings.lanes
    shares = record.read_shares()
    order = shares.draw(lanes, step.lanes, count)
    if len(lanes) > 1:
        record.shares = records.to_json(shares)
    # Unlike any other admission's of this user: the step's own count is in it.
    named = f"{record.epoch}-{record.promoted}-"
    rows = {
        lane: session.execute(
            ADMIT, (now, until, named, record.id, record.id, lane, number)
        ).fetchall()
        for lane, number in Counter(order).items()
    }
    return Admitted(order, rows, now, until)


def _count(session: Session, steps: Sequence[Step]) -> None:
    """Everybody let in is out of the line."""
    gone: Counter[tuple[int, str, int]] = Counter()
    for step in steps:
        if step.admitted is not None:
            for lane, rows in step.admitted.rows.items():
                line.count_lane(gone, step.record.id, lane, [row[0] for row in rows])
    line.leave_all(session, gone)


def _see_again(session: Session, steps: Sequence[Step]) -> None:
    """Where somebody left the line, another may have been silent for longest."""
    asking = [s for s in steps if s.admitted is not None and s.settings.wait_grace is not None]
    if asking:
        found = records.moments(session, json_array([step.record.id for step in asking]))
        for step in asking:
            step.moments = found[step.record.id]


def _finish(step: Step, now: int, limit: int) -> Promotion:
    record, waiting = step.record, step.waiting
    look_at = _look_at(step, now)
    # Nobody else writes here: the next moment is known, but a line must be seen to.
    moments = [look_at] if look_at is not None else []
    record.due = min([*moments, now + ATTEND_MS] if waiting else moments, default=None)
    return Promotion(
        room=record.name,
        admitted=() if step.admitted is None else step.admitted,
        expired=step.over + step.silent,
        more=limit in (step.over, step.silent, step.number),
        look_at=look_at,
    )


def _look_at(step: Step, now: int) -> int | None:
    record, settings = step.record, step.settings
    last_seen, ends, _ = step.moments
    moments = [] if ends is None else [ends]
    if settings.wait_grace is not None and last_seen is not None:
        moments.append(max(last_seen, record.floor) + settings.wait_grace)
    state = record.state_at(now)
    if state is RoomState.SCHEDULED and settings.opens_at is not None:
        moments.append(settings.opens_at)
    rate = settings.admit_rate
    room_left = record.in_use < settings.capacity and step.waiting > 0
    if state is RoomState.OPEN and rate is not None and room_left:
        credit = earn(rate, record.credit, record.credit_at, now)
        moments.append(next_credit_at(rate, credit, now))
    return min(moments, default=None)
