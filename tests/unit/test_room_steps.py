"""The steps of a visitor keep a room's promises and change nothing that they are given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from penstock.model import room_steps as steps
from penstock.model.room import Rate, Room, RoomSettings, RoomState
from penstock.model.room_steps import RoomRecord, Tally
from penstock.model.ticket import HOLDS_SLOT, LIVE, JoinAnswer, Joining, Ticket, TicketState

NOW = 1_000_000
USERS = ["a", "b", "c", "d"]
settings_of_rooms = st.builds(
    RoomSettings,
    capacity=st.integers(0, 3),
    admit_rate=st.sampled_from([None, Rate(2, 1000)]),
    claim_ttl=st.sampled_from([None, 10]),
    lanes=st.sampled_from([{"default": 1}, {"default": 1, "vip": 3}]),
    lottery=st.booleans(),
    opens_at=st.sampled_from([None, NOW + 5]),
)
actions = st.lists(
    st.tuples(st.sampled_from(["join", "enter", "leave", "promote"]), st.sampled_from(USERS))
)


def waiting(record: RoomRecord, tickets: dict[str, Ticket]) -> dict[str, int]:
    lanes = dict.fromkeys(record.room.settings.lanes, 0)
    for ticket in tickets.values():
        if ticket.state is TicketState.WAITING:
            lanes[ticket.lane] += 1
    return lanes


def act(
    action: str, user: str, record: RoomRecord, tickets: dict[str, Ticket], now: int
) -> tuple[RoomRecord, list[Ticket]]:
    if action == "join":
        lane = "vip" if user == "d" else "default"
        lanes = waiting(record, tickets)
        _, record, changed = steps.join(record, tickets, lanes, [Joining(user, lane)], now)
        return record, list(changed)
    if action == "promote":
        admission, record, _ = steps.admit(record, waiting(record, tickets), now, 10)
        line = [t for t in tickets.values() if t.state is TicketState.WAITING]
        line.sort(key=lambda ticket: (ticket.number, ticket.user))
        admitted = []
        for lane in () if admission is None else admission.lanes:
            first = next(t for t in line if t.lane == lane)
            line.remove(first)
            admitted.append(admission.ticket(first) if admission is not None else first)
        return record, admitted
    if user not in tickets:
        return record, []
    if action == "enter":
        passes = [(user, tickets[user].pass_id)]
        _, record, changed = steps.enter(record, tickets, passes, now)
        return record, list(changed)
    _, record, ended = steps.end(record, [tickets[user]], TicketState.LEFT)
    return record, list(ended)


@given(settings_of_rooms, actions)
def test_slots_are_held_by_tickets_and_everybody_who_joined_is_counted_once(
    settings: RoomSettings, doing: list[tuple[str, str]]
) -> None:
    record = RoomRecord(Room(name="r", settings=settings), Tally())
    tickets: dict[str, Ticket] = {}
    for passed, (action, user) in enumerate(doing):
        before = asdict(record.tally)
        given_record = record
        record, changed = act(action, user, record, tickets, NOW + passed)
        assert asdict(given_record.tally) == before, "a step changes no record it is given"
        tickets |= {ticket.user: ticket for ticket in changed}
        tally = record.tally
        holding = sum(ticket.state in HOLDS_SLOT for ticket in tickets.values())
        assert tally.in_use == tally.admitted + tally.entered == holding
        assert tally.in_use <= settings.capacity
        in_line = sum(waiting(record, tickets).values())
        assert tally.joined == in_line + tally.in_use + tally.left


@given(settings_of_rooms, st.sampled_from(RoomState), st.lists(st.sampled_from(USERS)))
def test_a_visitor_joins_once_and_nobody_joins_a_closed_room(
    settings: RoomSettings, state: RoomState, users: list[str]
) -> None:
    record = RoomRecord(Room(name="r", settings=settings, state=state), Tally())
    joining = [Joining(user) for user in users]
    lanes = dict.fromkeys(settings.lanes, 0)
    answers, after, tickets = steps.join(record, {}, lanes, joining, NOW)
    new = [one for one in answers if one.answer is JoinAnswer.NEW]
    assert len(new) == after.tally.joined == len(tickets)
    assert len(new) == (0 if state is RoomState.CLOSED else len(set(users)))
    assert all(ticket.state in LIVE for ticket in tickets)
    if not (settings.lottery and state is RoomState.SCHEDULED):
        assert [one.ticket and one.ticket.ahead for one in new] == list(range(len(new)))


def test_a_reset_voids_every_pass_and_keeps_totals_and_numbers() -> None:
    tally = Tally(joined=3, promoted=2, left=1, in_use=1, admitted=1, number=9, credit=5)
    fresh = steps.reset(RoomRecord(Room(name="r", settings=RoomSettings()), tally))
    assert fresh.room.epoch == 2
    assert (fresh.tally.number, fresh.tally.credit, fresh.tally.in_use) == (9, 5, 0)
    assert (fresh.tally.before.joined, fresh.tally.before.promoted) == (3, 2)


def test_a_sign_of_life_that_arrives_late_does_not_shorten_a_session() -> None:
    room = Room(name="sale", settings=RoomSettings(session_ttl=4_000))
    record = RoomRecord(room, Tally(in_use=1))
    inside = Ticket(user="a", state=TicketState.ENTERED, until=NOW + 4_000)
    later = steps.heartbeat(record, inside, NOW + 3_000)
    assert steps.heartbeat(record, later, NOW + 1_000).until == NOW + 7_000
