"""The life of a visitor as pure steps: (record, request, now) → (answer, record, tickets).

    configure, set_state, reset   an operator changes the room
    join       line up, once: a visitor with a live ticket keeps it
    see, heartbeat                a sign of life, waiting or inside
    enter      redeem an admission, once, while it holds a slot
    end        LEFT, REVOKED or EXPIRED: a ticket that held a slot gives exactly one back
    promote    attend → end the overdue and the silent → admit → look_at

A store loads the room's record and the tickets that a step is about, takes the step and writes
the record and the tickets that it returns, in one transaction. What a step must know of people
whom it does not load (how many wait, who comes first) is an argument.

`penstock.stores.memory` and `penstock.stores.sql` take these steps. Redis' scripts are copies: the
state machine of `penstock.testing.room_suite` holds every store equal to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.model.room import (
    Room,
    RoomFigures,
    RoomPast,
    RoomSettings,
    RoomState,
    first_state,
)
from penstock.model.room_admission import (
    ATTEND_MS,
    LOT_BITS,
    OUTAGE_MS,
    Flow,
    LaneShares,
    admissible,
    earn,
    frees_slot,
    lot,
    next_credit_at,
    silent_before,
)
from penstock.model.ticket import (
    HOLDS_SLOT,
    LIVE,
    TRANSITIONS,
    EnterAnswer,
    JoinAnswer,
    Joined,
    Joining,
    Outlook,
    Redeemed,
    Ticket,
    TicketState,
)

A = TypeVar("A")

FIRST_NUMBER = 1 << (LOT_BITS + 1)
"""First of the numbers given in order of arrival: they lie above every lottery number."""


class Tally(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A room's counters, and the state of its line, rate and lanes."""

    in_use: int = 0
    """Slots in use: `admitted` + `entered`, unless another program counts too."""
    number: int = FIRST_NUMBER
    """The last number given in order of arrival."""
    joined: int = 0
    promoted: int = 0
    admitted: int = 0
    """Tickets that are ADMITTED now."""
    entered: int = 0
    """Tickets that are ENTERED now."""
    left: int = 0
    expired: int = 0
    revoked: int = 0
    credit: int = 0
    credit_at: int = 0
    attended: int = 0
    """When a promotion last noted that the room is attended."""
    floor: int = 0
    """When the room was last found unattended: no waiter could be seen before it."""
    shares: LaneShares = msgspec.field(default_factory=LaneShares)
    flow: Flow = Flow()
    before: RoomPast = RoomPast()
    """The totals of the epochs that a reset has ended."""


class RoomRecord(msgspec.Struct, frozen=True):
    """A room and its tally."""

    room: Room
    tally: Tally


class RoomStep(NamedTuple, Generic[A]):
    """The result of a step."""

    answer: A
    record: RoomRecord
    """The record to write: the given one if nothing changes."""
    tickets: Sequence[Ticket] = ()
    """Tickets to write, in their new state."""


class Moments(NamedTuple):
    """The moments at which the passing of time alone changes a line."""

    seen: int | None
    """The last sign of life of the waiter who has been silent for longest."""
    ends: int | None
    """When the first admission or session ends."""


# --- the room ------------------------------------------------------------------------------


def configure(
    record: RoomRecord | None, name: str, settings: RoomSettings, state: RoomState | None, now: int
) -> RoomRecord:
    """Create the room or change its settings; `state` None keeps an existing room's state."""
    if record is None:
        first = first_state(state, settings, now)
        return RoomRecord(Room(name=name, settings=settings, state=first), Tally(attended=now))
    room = record.room
    kept = room.state if state is None else state
    return replace(record, room=replace(room, settings=settings, state=kept))


def lost_lanes(record: RoomRecord | None, settings: RoomSettings) -> frozenset[str]:
    """The lanes that new settings remove: visitors waiting there move to the default lane."""
    if record is None:
        return frozenset()
    return frozenset(record.room.settings.lanes.keys() - settings.lanes.keys())


def set_state(record: RoomRecord, state: RoomState) -> RoomRecord:
    return replace(record, room=replace(record.room, state=state))


def reset(record: RoomRecord) -> RoomRecord:
    """A new epoch without visitors. Numbers and the rate continue, and totals never decrease."""
    tally, before = record.tally, record.tally.before
    return RoomRecord(
        replace(record.room, epoch=record.room.epoch + 1),
        Tally(
            number=tally.number,
            credit=tally.credit,
            credit_at=tally.credit_at,
            attended=tally.attended,
            floor=tally.floor,
            before=RoomPast(
                joined=before.joined + tally.joined,
                promoted=before.promoted + tally.promoted,
                left=before.left + tally.left,
                expired=before.expired + tally.expired,
            ),
        ),
    )


# --- a visitor -----------------------------------------------------------------------------


def join(
    record: RoomRecord,
    known: Mapping[str, Ticket],
    waiting: Mapping[str, int],
    joining: Sequence[Joining],
    now: int,
) -> RoomStep[list[Joined]]:
    """Join visitors at the end of their lanes, in order.

    `known` has the existing tickets of these visitors, `waiting` the number of waiters in each
    lane. A live ticket is kept, and joining again is a sign of life. A new ticket knows how many
    are ahead, unless its number was drawn by lot.
    """
    room, settings, number = record.room, record.room.settings, record.tally.number
    state = room.state_at(now)
    drawn = state is RoomState.SCHEDULED and settings.lottery
    ahead = dict(waiting)
    changed: dict[str, Ticket] = {}
    new = 0
    answers = []
    for one in joining:
        ticket = changed.get(one.user) or known.get(one.user)
        if ticket is not None and ticket.state in LIVE:
            if ticket.state is TicketState.WAITING:
                changed[one.user] = ticket = see(ticket, now)
            answers.append(Joined(JoinAnswer.KNOWN, ticket))
        elif state is RoomState.CLOSED:
            answers.append(Joined(JoinAnswer.CLOSED))
        elif one.lane not in settings.lanes:
            answers.append(Joined(JoinAnswer.UNKNOWN_LANE))
        else:
            new += 1
            number += not drawn
            changed[one.user] = ticket = Ticket(
                user=one.user,
                state=TicketState.WAITING,
                lane=one.lane,
                number=lot(settings.seed, one.user) if drawn else number,
                joined=now,
                ahead=None if drawn else ahead[one.lane],
                seen=now,
                instance=one.instance,
            )
            ahead[one.lane] += 1
            answers.append(Joined(JoinAnswer.NEW, ticket))
    if new:
        tally = replace(record.tally, number=number, joined=record.tally.joined + new)
        record = RoomRecord(room, tally)
    return RoomStep(answers, record, tuple(changed.values()))


def see(ticket: Ticket, now: int) -> Ticket:
    """Record a sign of life: a waiter keeps the ticket."""
    if ticket.state is not TicketState.WAITING or (ticket.seen is not None and ticket.seen >= now):
        return ticket
    return replace(ticket, seen=now)


def heartbeat(record: RoomRecord, ticket: Ticket, now: int) -> Ticket:
    """Record a sign of life: a waiter keeps the ticket, a session lasts session_ttl from now.

    A heartbeat that arrives late shortens nothing: a later one may have arrived before it.
    """
    if ticket.state is TicketState.ENTERED:
        end = _session_end(record, now)
        if end is not None and ticket.until is not None:
            end = max(end, ticket.until)
        return replace(ticket, until=end)
    return see(ticket, now)


def enter(
    record: RoomRecord, known: Mapping[str, Ticket], passes: Sequence[tuple[str, str]], now: int
) -> RoomStep[list[Redeemed]]:
    """Redeem admissions, given as (user, pass id): each at most once, while it holds a slot."""
    changed: dict[str, Ticket] = {}
    answers = []
    for user, pass_id in passes:
        ticket = changed.get(user) or known.get(user)
        answer = _redemption(ticket, pass_id, now)
        if ticket is None or answer is EnterAnswer.INVALID:
            answers.append(Redeemed(answer))
            continue
        if answer is EnterAnswer.ENTERED:
            until = _session_end(record, now)
            ticket = _become(ticket, TicketState.ENTERED, entered=now, until=until)
            changed[user] = ticket
        answers.append(Redeemed(answer, ticket))
    if changed:
        number, tally = len(changed), record.tally
        tally = replace(tally, admitted=tally.admitted - number, entered=tally.entered + number)
        record = RoomRecord(record.room, tally)
    return RoomStep(answers, record, tuple(changed.values()))


def _redemption(ticket: Ticket | None, pass_id: str, now: int) -> EnterAnswer:
    if ticket is None or not pass_id or ticket.pass_id != pass_id:
        return EnterAnswer.INVALID
    if ticket.entered is not None:
        return EnterAnswer.USED
    is_over = ticket.until is not None and ticket.until <= now
    if ticket.state is not TicketState.ADMITTED or is_over:
        return EnterAnswer.INVALID
    return EnterAnswer.ENTERED


def _session_end(record: RoomRecord, now: int) -> int | None:
    ttl = record.room.settings.session_ttl
    return None if ttl is None else now + ttl


_TOTALS = {
    TicketState.LEFT: "left",
    TicketState.EXPIRED: "expired",
    TicketState.REVOKED: "revoked",
}


def end(record: RoomRecord, tickets: Iterable[Ticket], state: TicketState) -> RoomStep[int]:
    """End the live ones among the tickets; the answer is their number."""
    tally = record.tally
    in_use, admitted, entered = tally.in_use, tally.admitted, tally.entered
    ended = []
    for ticket in tickets:
        if ticket.state not in LIVE:
            continue
        if ticket.state in HOLDS_SLOT:
            in_use -= frees_slot(in_use, admitted + entered)
            admitted -= ticket.state is TicketState.ADMITTED
            entered -= ticket.state is TicketState.ENTERED
        ended.append(_become(ticket, state, until=None))
    if not ended:
        return RoomStep(0, record)
    total = {_TOTALS[state]: getattr(tally, _TOTALS[state]) + len(ended)}
    tally = replace(tally, in_use=in_use, admitted=admitted, entered=entered, **total)
    return RoomStep(len(ended), RoomRecord(record.room, tally), ended)


def _become(ticket: Ticket, state: TicketState, **fields: object) -> Ticket:
    if state not in TRANSITIONS[ticket.state]:
        raise ValueError(f"{ticket.user}: {ticket.state} may not become {state}")
    return replace(ticket, state=state, ahead=None, seen=None, **fields)


# --- promote -------------------------------------------------------------------------------


def attend(record: RoomRecord, now: int) -> RoomRecord:
    """Note that the room is attended; after an outage waiters get a new grace."""
    passed = now - record.tally.attended
    if passed < ATTEND_MS:
        return record
    floor = now if passed > OUTAGE_MS else record.tally.floor
    return RoomRecord(record.room, replace(record.tally, attended=now, floor=floor))


def silence(record: RoomRecord, now: int) -> int | None:
    """Waiters last seen at or before this moment have given up; None if no waiter has."""
    return silent_before(record.room.settings, record.tally.floor, now)


class Admission(msgspec.Struct, frozen=True):
    """The lanes whose next visitors are admitted, in order."""

    lanes: Sequence[str]
    now: int
    until: int | None
    """Until when the slot waits for the visitor to enter."""
    pass_prefix: str
    """The prefix of the pass ids: unlike that of any other admission in this room."""

    def ticket(self, waiting: Ticket) -> Ticket:
        """The ticket of an admitted waiter."""
        return _become(
            waiting,
            TicketState.ADMITTED,
            promoted=self.now,
            until=self.until,
            pass_id=f"{self.pass_prefix}{waiting.number}",
        )


def admit(
    record: RoomRecord, waiting: Mapping[str, int], now: int, limit: int
) -> RoomStep[Admission | None]:
    """Admit as many as slots and rate allow, at most `limit`; None if that is none.

    `waiting` says how many wait in each lane of the room.
    """
    room, tally = record.room, record.tally
    settings, in_line = room.settings, sum(waiting.values())
    if not in_line or room.state_at(now) is not RoomState.OPEN:
        return RoomStep(None, record)
    rate, credit, credit_at, tokens = settings.admit_rate, tally.credit, tally.credit_at, None
    if rate is not None:
        credit = earn(rate, credit, credit_at, now)
        tokens = credit // rate.per
    count = admissible(settings.capacity, tally.in_use, in_line, tokens, limit)
    if count == 0:
        return RoomStep(None, record)
    if rate is not None:
        credit, credit_at = credit - count * rate.per, now
    shares, order = _draw(tally.shares, settings.lanes, waiting, count)
    admission = Admission(
        order,
        now,
        None if settings.claim_ttl is None else now + settings.claim_ttl,
        f"{room.epoch}-{tally.promoted}-",
    )
    tally = replace(
        tally,
        promoted=tally.promoted + count,
        admitted=tally.admitted + count,
        in_use=tally.in_use + count,
        credit=credit,
        credit_at=credit_at,
        shares=shares,
        flow=tally.flow.after(count, now),
    )
    return RoomStep(admission, RoomRecord(room, tally))


def _draw(
    shares: LaneShares, lanes: Mapping[str, int], waiting: Mapping[str, int], count: int
) -> tuple[LaneShares, Sequence[str]]:
    if len(lanes) == 1:
        return shares, tuple(lanes) * count
    drawn = LaneShares(shares.at, dict(shares.passes))
    return drawn, drawn.draw(lanes, waiting, count)


def look_at(record: RoomRecord, is_waiting: bool, moments: Moments, now: int) -> int | None:
    """The next moment at which the passing of time alone changes the room."""
    room, tally = record.room, record.tally
    settings = room.settings
    found = [] if moments.ends is None else [moments.ends]
    if settings.wait_grace is not None and moments.seen is not None:
        found.append(max(moments.seen, tally.floor) + settings.wait_grace)
    state = room.state_at(now)
    if state is RoomState.SCHEDULED and settings.opens_at is not None:
        found.append(settings.opens_at)
    rate = settings.admit_rate
    has_slot = tally.in_use < settings.capacity
    if state is RoomState.OPEN and rate is not None and is_waiting and has_slot:
        credit = earn(rate, tally.credit, tally.credit_at, now)
        found.append(next_credit_at(rate, credit, now))
    return min(found, default=None)


# --- views -----------------------------------------------------------------------------------


def outlook(record: RoomRecord, waiting: dict[str, int], now: int) -> Outlook:
    return Outlook(
        room=record.room,
        state=record.room.state_at(now),
        in_use=record.tally.in_use,
        waiting=waiting,
        a_minute=record.tally.flow.a_minute(now),
    )


def figures(record: RoomRecord, waiting: int, now: int) -> RoomFigures:
    tally = record.tally
    return RoomFigures(
        room=record.room,
        state=record.room.state_at(now),
        in_use=tally.in_use,
        waiting=waiting,
        admitted=tally.admitted,
        entered=tally.entered,
        left=tally.left,
        expired=tally.expired,
        revoked=tally.revoked,
        joined=tally.joined,
        promoted=tally.promoted,
        a_minute=tally.flow.a_minute(now),
        before=tally.before,
    )
