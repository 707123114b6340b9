"""SQLite's statements for many messages at once do what the pure steps do to each.

Three steps are hot and written a second time, in SQL. Each is held equal to its step here:
`Session.put_new` ↔ `lifecycle.put` of new ids, `messages.claim` ↔ `lifecycle.lease`,
`messages._deliver` ↔ `lifecycle.settle` of the delivered. Of waiting rooms: `see_ticket` ↔
`room_steps.see`, `admit` ↔ `room_steps.Admission.ticket`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model import lifecycle, room_steps
from penstock.model.lifecycle import Record
from penstock.model.message import JSON, Labels, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.state import State
from penstock.model.ticket import Ticket, TicketState
from penstock.stores.sql import messages as steps
from penstock.stores.sql import room_rows
from penstock.stores.sql.messages import to_record
from penstock.stores.sqlite import SqliteStore, open_store
from penstock.stores.sqlite.session import Session

NOW, LEASE = 10_000, 500
NAMES = [f"id-{number}" for number in range(12)]
Records = dict[str, Record]

plain = st.builds(
    NewMessage,
    id=st.sampled_from(NAMES),
    route=st.just("r"),
    key=st.just("shared"),
    payload=st.binary(max_size=4),
    due=st.integers(NOW - 3, NOW + 1),
    priority=st.integers(4, 6),
)
full = st.builds(
    NewMessage,
    id=st.sampled_from(NAMES),
    route=st.sampled_from(["r", "s"]),
    key=st.sampled_from([*NAMES, "shared"]),
    payload=st.binary(max_size=4),
    due=st.integers(NOW - 3, NOW + 1),
    content_type=st.sampled_from([JSON, "text/plain"]),
    headers=st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)),
    expires=st.none() | st.just(NOW + 9),
    priority=st.integers(0, 9),
    labels=st.none() | st.just(Labels(channel="push", tags=("a",))),
    topic=st.none() | st.just("topic"),
    on_conflict=st.sampled_from(OnConflict),
    blocked=st.none() | st.just("not wanted"),
    dead=st.none() | st.just("unreadable"),
)
batches = st.lists(plain, min_size=1, max_size=12) | st.lists(full, min_size=1, max_size=12)


@asynccontextmanager
async def opened() -> AsyncIterator[Session]:
    store = (
        await open_store("sqlite://", total_partitions=1, retention=1, retention_count=10**6)
    ).messages
    assert isinstance(store, SqliteStore)
    try:
        yield store._session
    finally:
        await store.close()


def stored(session: Session) -> Records:
    rows = session.query("records", {"ids": session.array(NAMES)})
    records = [to_record(row) for row in rows]
    return {r.message.id: replace(r, message=replace(r.message, ref=0)) for r in records}


def put(session: Session, batch: list[NewMessage]) -> Records:
    """Put the batch; the records that the pure steps make of it."""
    records: Records = {}
    receipts = []
    for new in batch:
        receipt, record, _ = lifecycle.put(records.get(new.id), new, NOW)
        assert record is not None
        records[new.id] = record
        receipts.append(receipt)
    assert steps.put(session, batch, NOW) == receipts
    return records


def claim(session: Session, records: Records, limit: int) -> tuple[Records, int]:
    """Claim, and take the pure step of the same messages; the records then, and the token."""
    got = steps.claim(session, "r", limit, LEASE, NOW)
    leased = {
        name: lifecycle.lease(record, got.token, NOW)
        for name, record in records.items()
        if record.message.route == "r"
    }
    due = [step.answer for step in leased.values() if step.answer is not None]
    due.sort(key=lambda m: (-m.priority, m.due, m.id))
    assert [replace(m, ref=0) for m in got.messages] == due[:limit]
    taken = {m.id: record for m in due[:limit] if (record := leased[m.id].record) is not None}
    return {**records, **taken}, got.token


@settings(max_examples=60)
@given(batches)
async def test_put_new_is_lifecycle_put_of_new_ids(batch: list[NewMessage]) -> None:
    async with opened() as session:
        records = put(session, batch)
        assert stored(session) == records


@settings(max_examples=60)
@given(batches, st.integers(1, 12))
async def test_claim_is_lifecycle_lease(batch: list[NewMessage], limit: int) -> None:
    async with opened() as session:
        records, _ = claim(session, put(session, batch), limit)
        assert stored(session) == records


@settings(max_examples=60)
@given(batches, st.data())
async def test_deliver_is_lifecycle_settle_of_the_delivered(
    batch: list[NewMessage], data: st.DataObject
) -> None:
    async with opened() as session:
        records, token = claim(session, put(session, batch), 12)
        for name in data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
            cancel = Amendment(action=Action.CANCEL, id=name)
            steps.amend(session, [cancel], NOW)
            record = lifecycle.amend(records.get(name), cancel, NOW).record
            if record is not None:
                records[name] = record
        found = session.query("records", {"ids": session.array(list(records))})
        rows = {row[1]: row for row in found}
        settlements = [
            Settlement(
                message=to_record(rows[name]).message,
                token=token + data.draw(st.sampled_from([0, 0, 0, 1])),
                state=State.DELIVERED,
                event="delivered",
                allowed=data.draw(st.sampled_from([None, "caps", "no rule"])),
            )
            for name in data.draw(st.lists(st.sampled_from(sorted(rows)), unique=True))
        ]
        states = []
        for settlement in settlements:
            step = lifecycle.settle(records[settlement.message.id], settlement, NOW + 1)
            assert step.record is not None
            records[settlement.message.id] = step.record
            states.append(step.answer)
        assert steps.settle(session, settlements, NOW + 1) == states
        assert stored(session) == records


# --- waiting rooms: rooms.sql ↔ model/room_steps -------------------------------------------

waiters = st.lists(
    st.builds(
        Ticket,
        user=st.sampled_from(NAMES),
        state=st.just(TicketState.WAITING),
        number=st.integers(0, 1 << 42),
        seen=st.integers(NOW - 2, NOW + 2),
    ),
    unique_by=lambda ticket: ticket.user,
    min_size=1,
)


@settings(max_examples=60)
@given(waiters)
async def test_see_ticket_is_room_steps_see(line: list[Ticket]) -> None:
    async with opened() as session:
        room_rows.put_tickets(session, 1, line, NOW)
        session.many("see_ticket", [{"now": NOW, "room": 1, "user": one.user} for one in line])
        found = room_rows.tickets(session, 1, NAMES)
        assert found == {one.user: room_steps.see(one, NOW) for one in line}


@settings(max_examples=60)
@given(waiters, st.none() | st.just(NOW + 5))
async def test_admit_is_the_ticket_of_an_admission(line: list[Ticket], until: int | None) -> None:
    admission = room_steps.Admission(("default",) * len(line), NOW, until, "1-0-")
    async with opened() as session:
        room_rows.put_tickets(session, 1, line, NOW)
        session.execute("admit", (NOW, until, admission.pass_prefix, 1, len(line)))
        found = room_rows.tickets(session, 1, NAMES)
        assert found == {one.user: admission.ticket(one) for one in line}


@settings(max_examples=60)
@given(waiters)
async def test_placed_tickets_count_by_the_blocks_of_block_of(line: list[Ticket]) -> None:
    async with opened() as session:
        room_rows.put_tickets(session, 1, line, NOW)
        room_rows.line_up(session, 1, line)
        order = sorted(line, key=lambda one: (one.number, one.user))
        found = room_rows.placed(session, 1, NAMES)
        assert [found[one.user].ahead for one in order] == list(range(len(order)))
