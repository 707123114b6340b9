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
from penstock.model.room import RoomState, effective_state
from penstock.model.ticket import Promotion, Ticket, TicketState
from penstock.stores.sqlite import room_line as line
from penstock.stores.sqlite import room_record as records
from penstock.stores.sqlite.room_admitted import Admitted
from penstock.stores.sqlite.room_record import (
    ENDED,
    HOLDING,
    STATES,
    WAITING,
    Lanes,
    Moments,
    Record,
)
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

MOST_A_CALL = 1_000
"""People let in by one call: rooms that come after have to ask again, others want the loop too."""

FIRST = """
SELECT number, user, joined, instance, id FROM room_tickets
WHERE room = ? AND lane = ? AND kind = 0 ORDER BY number, user LIMIT ?
"""
ADMIT = """
UPDATE OR FAIL room_tickets
SET kind = 1, state = 'ADMITTED', promoted = ?, until = ?, pass = ? || number
WHERE id BETWEEN ? AND ?
"""
"""Those who came one after the other have ids in a row: one statement lets them all in, for half of
what one for each costs. OR FAIL, since the whole transaction is rolled back when anything fails:
SQLite then keeps no copy of every page to undo this statement alone."""


class Step:
    """One room's step: what it found, and what it has come to."""

    __slots__ = (
        *("admitted", "lanes", "moments", "number", "over", "record", "settings", "silent"),
        *("state", "waiting"),
    )

    def __init__(self, record: Record, lanes: Lanes, moments: Moments, now: int) -> None:
        self.record = record
        self.settings = settings = records.settings_of(record.settings)
        self.state = effective_state(STATES[record.state], settings.opens_at, now)
        self.lanes = lanes
        self.waiting = sum(lanes.values())
        self.moments = moments
        self.over = self.silent = self.number = 0
        self.admitted: Admitted | None = None


def promote(session: Session, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
    found = records.survey(session, names)
    left = MOST_A_CALL
    done: dict[str, Promotion] = {}
    stepped = []
    for name in dict.fromkeys(names):
        if name not in found:
            continue
        if left <= 0:
            done[name] = Promotion(room=name, more=True)
            continue
        step = Step(*found[name], now)
        _attend(session, step, now, limit)
        _expire(session, step, now, limit)
        _admit(session, step, now, limit)
        left -= step.number
        stepped.append(step)
    _write(session, stepped, now)
    for step in stepped:
        done[step.record.name] = _finish(step, now, limit)
    records.save_steps(session, [step.record for step in stepped])
    return [done.pop(name) if name in done else Promotion(room=name) for name in names]


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
        step.waiting -= step.silent
        for ticket in silent:
            step.lanes[ticket.lane] -= 1
    if ended:
        records.end(session, record, ended, TicketState.EXPIRED, now)
        step.moments = records.moments(session, json_array([record.id]))[record.id]


def _over(session: Session, record: Record, kind: int, until: int, limit: int) -> list[Ticket]:
    rows = session.execute(records.OVER, (record.id, kind, until, limit)).fetchall()
    return [records.to_ticket(row) for row in rows]


def _admit(session: Session, step: Step, now: int, limit: int) -> None:
    if not step.waiting or step.state is not RoomState.OPEN:
        return
    record, settings = step.record, step.settings
    rate = settings.admit_rate
    credit = 0 if rate is None else earn(rate, record.credit, record.credit_at, now)
    tokens = None if rate is None else credit // rate.per
    count = admissible(settings.capacity, record.in_use, step.waiting, tokens, limit)
    if count == 0:
        return
    until = None if settings.claim_ttl is None else now + settings.claim_ttl
    step.admitted = _first_in_line(session, step, count, now, until)
    step.number = count
    step.waiting -= count
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


def _first_in_line(
    session: Session, step: Step, count: int, now: int, until: int | None
) -> Admitted:
    """The next `count` people, each lane in its order, the lanes by their weights."""
    record, lanes = step.record, step.settings.lanes
    order: Sequence[str]
    if len(lanes) == 1:
        (lane,) = lanes
        order, wanted = (lane,) * count, {lane: count}
    else:
        shares = record.read_shares()
        order = shares.draw(lanes, step.lanes, count)
        record.shares = records.to_json(shares)
        wanted = Counter(order)
    rows = {}
    for lane, number in wanted.items():
        rows[lane] = session.execute(FIRST, (record.id, lane, number)).fetchall()
        step.lanes[lane] -= number
    # Unlike any other admission's of this user: the step's own count is in it.
    return Admitted(order, rows, f"{record.epoch}-{record.promoted}-", now, until)


def _write(session: Session, steps: Sequence[Step], now: int) -> None:
    """Everybody let in has a slot and is out of the line."""
    heads = line.Heads()
    tickets: list[Sequence[object]] = []
    for step in steps:
        room, admitted = step.record.id, step.admitted
        if admitted is None:
            continue
        named, until = admitted.named, admitted.until
        for lane, rows in admitted.rows.items():
            heads.leave(room, lane, rows, step.lanes[lane])
            tickets += [(now, until, named, *run) for run in _in_a_row([row[4] for row in rows])]
    if tickets:
        session.connection.executemany(ADMIT, tickets)
        heads.save(session)
    _see_again(session, steps)


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


def _see_again(session: Session, steps: Sequence[Step]) -> None:
    """Where somebody left the line, another may have been silent for longest."""
    asking = [s for s in steps if s.admitted is not None and s.settings.wait_grace is not None]
    if asking:
        found = records.moments(session, json_array([step.record.id for step in asking]))
        for step in asking:
            step.moments = found[step.record.id]


def _finish(step: Step, now: int, limit: int) -> Promotion:
    record = step.record
    look_at = due = _look_at(step, now)
    if step.waiting:
        # Nobody else writes here: the next moment is known, but a line must be seen to.
        due = now + ATTEND_MS if look_at is None else min(look_at, now + ATTEND_MS)
    record.due = due
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
    if step.state is RoomState.SCHEDULED and settings.opens_at is not None:
        moments.append(settings.opens_at)
    rate = settings.admit_rate
    room_left = record.in_use < settings.capacity and step.waiting > 0
    if step.state is RoomState.OPEN and rate is not None and room_left:
        credit = earn(rate, record.credit, record.credit_at, now)
        moments.append(next_credit_at(rate, credit, now))
    return min(moments, default=None)
