"""Waiting rooms in SQLite: the port's methods, each a piece of work for the group commit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from penstock.model.admission import LOOK_EVERY_MS
from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState, first_state
from penstock.model.ticket import (
    LIVE,
    EnterAnswer,
    JoinedAll,
    Joining,
    Looked,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener, TurnListener, WaitingVisitors
from penstock.stores.sqlite import room_record as records
from penstock.stores.sqlite.group import GroupCommit
from penstock.stores.sqlite.room_join import line_up
from penstock.stores.sqlite.room_promote import promote
from penstock.stores.sqlite.room_record import Record
from penstock.stores.sqlite.rooms_schema import make_tables
from penstock.stores.sqlite.session import Session
from penstock.time.clock import Clock

_SECRET = "entry-token"  # noqa: S105 - a row's name


class SqliteRooms:
    """A RoomStore beside the messages, in the same file and the same transactions."""

    def __init__(self, group: GroupCommit, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._listeners: list[RoomListener] = []
        self._seen_version: int | None = None
        """Of the file, when turns_elsewhere last looked."""

    @property
    def clock(self) -> Clock:
        return self._clock

    async def make_tables(self) -> None:
        await self._group.submit(make_tables)

    # --- rooms ---

    async def put_room(
        self, name: str, settings: RoomSettings, state: RoomState | None, now: int
    ) -> Room:
        def work(session: Session) -> Room:
            record = records.load(session, name)
            text = records.to_json(settings)
            if record is None:
                first = first_state(state, settings, now).value
                record = Record(id=0, name=name, settings=text, state=first, attended=now)
                records.make(session, record)
            records.move_lanes(session, record, settings)
            record.settings = text
            record.state = record.state if state is None else state.value
            record.due = now
            records.save(session, record)
            return record.room

        room = await self._group.submit(work)
        self._tell(name)
        return room

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        def work(session: Session) -> list[Room | None]:
            found = [records.load(session, name) for name in names]
            return [None if record is None else record.room for record in found]

        return await self._group.submit(work, writes=False)

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        query = "SELECT name FROM rooms WHERE name > ? ORDER BY name LIMIT ?"
        return await self._group.submit(
            lambda s: [row[0] for row in s.execute(query, (after, limit))], writes=False
        )

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        def work(session: Session) -> Room | None:
            record = records.load(session, name)
            if record is None:
                return None
            record.state = state.value
            record.due = now
            records.save(session, record)
            return record.room

        room = await self._group.submit(work)
        self._tell(name)
        return room

    async def reset(self, name: str, now: int) -> Room | None:
        def work(session: Session) -> Room | None:
            record = records.load(session, name)
            if record is None:
                return None
            records.keep_past(session, record)
            for statement in records.CLEAR:
                session.execute(statement, (record.id,))
            fresh = Record(
                id=record.id,
                name=name,
                settings=record.settings,
                state=record.state,
                epoch=record.epoch + 1,
                number=record.number,
                credit=record.credit,
                credit_at=record.credit_at,
                attended=record.attended,
                floor=record.floor,
                due=now,
            )
            records.save(session, fresh)
            return fresh.room

        room = await self._group.submit(work)
        self._tell(name)
        return room

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        def work(session: Session) -> JoinedAll | None:
            record = records.load(session, name)
            return None if record is None else line_up(session, record, joining, now)

        joined = await self._group.submit(work, rows=2 * len(joining))
        if joined is not None and joined.outlook.free > 0:
            self._tell(name)
        return joined

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        def work(session: Session) -> Looked | None:
            record = records.load(session, name)
            return None if record is None else _look(session, record, users, now, alive=alive)

        return await self._group.submit(work, rows=len(users) * alive, writes=alive)

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        def work(session: Session) -> Looked | None:
            record = records.load(session, name)
            if record is None:
                return None
            ttl = records.settings_of(record.settings).session_ttl
            until = None if ttl is None else now + ttl
            for ticket in records.find(session, record, users).values():
                if ticket.state is TicketState.ENTERED:
                    _put(session, record, replace(ticket, until=until))
            return _look(session, record, users, now, alive=True)

        return await self._group.submit(work, rows=len(users))

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        def work(session: Session) -> list[Redeemed] | None:
            record = records.load(session, name)
            if record is None:
                return None
            found = records.find(session, record, [user for user, _ in passes])
            done = [_redeem(record, found, user, pass_id, now) for user, pass_id in passes]
            entered = [one.ticket for one in done if one.answer is EnterAnswer.ENTERED]
            rows = [records.ticket_row(record.id, ticket) for ticket in entered if ticket]
            session.connection.executemany(records.PUT_TICKET, rows)
            records.save(session, record)
            return done

        return await self._group.submit(work, rows=2 * len(passes))

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        def work(session: Session) -> list[Ticket | None] | None:
            record = records.load(session, name)
            if record is None:
                return None
            found = records.find(session, record, users)
            live = [ticket for ticket in found.values() if ticket.state in LIVE]
            for ticket in records.end(session, record, live, state, now):
                found[ticket.user] = ticket
            record.due = now
            records.save(session, record)
            return [found.get(user) for user in users]

        tickets = await self._group.submit(work, rows=2 * len(users))
        self._tell(name)
        return tickets

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        return await self._group.submit(
            lambda session: promote(session, names, now, limit), rows=len(names)
        )

    # --- figures and wake-ups ---

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        def work(session: Session) -> list[RoomFigures | None]:
            found = [records.load(session, name) for name in names]
            return [
                None if record is None else records.figures(session, record, now)
                for record in found
            ]

        return await self._group.submit(work, writes=False)

    async def take_due(self, now: int, limit: int) -> list[str]:
        query = "SELECT id, name FROM rooms WHERE due <= ? ORDER BY due LIMIT ?"

        def look(session: Session) -> list[tuple[int, str]]:
            return session.execute(query, (now, limit)).fetchall()

        if not await self._group.submit(look, writes=False):
            return []  # the usual case costs no write

        def work(session: Session) -> list[str]:
            due = look(session)
            session.connection.executemany(
                "UPDATE rooms SET due = ? WHERE id = ?",
                [(now + LOOK_EVERY_MS, number) for number, _ in due],
            )
            return [name for _, name in due]

        return await self._group.submit(work, rows=limit)

    async def discover(self, now: int) -> int:
        del now
        return 0  # no other program writes here

    def listen_rooms(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    def listen_turns(self, listener: TurnListener) -> None:
        """Nobody tells: one has to ask for turns_elsewhere."""

    async def turns_elsewhere(self, waiting: WaitingVisitors) -> dict[str, list[str]]:
        def work(session: Session) -> dict[str, list[str]]:
            # It changes when another connection has committed, and with nothing of our own.
            (version,) = session.execute("PRAGMA data_version").fetchone()
            if version == self._seen_version:
                return {}
            self._seen_version = version
            return {room: _turned(session, room, users) for room, users in waiting().items()}

        return await self._group.submit(work, writes=False)

    async def secret(self, proposed: bytes) -> bytes:
        def work(session: Session) -> bytes:
            session.execute("INSERT OR IGNORE INTO room_secrets VALUES (?, ?)", (_SECRET, proposed))
            query = "SELECT secret FROM room_secrets WHERE name = ?"
            return bytes(session.execute(query, (_SECRET,)).fetchone()[0])

        return await self._group.submit(work)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


def _turned(session: Session, room: str, users: Sequence[str]) -> list[str]:
    """Those of them who are in line no more."""
    record = records.load(session, room)
    states = {} if record is None else records.states(session, record, users)
    return [user for user in users if states.get(user) is not TicketState.WAITING]


def _put(session: Session, record: Record, ticket: Ticket) -> None:
    session.execute(records.PUT_TICKET, records.ticket_row(record.id, ticket))


def _look(
    session: Session, record: Record, users: Sequence[str], now: int, *, alive: bool
) -> Looked:
    if alive:
        rows = [(now, record.id, user) for user in users]
        session.connection.executemany(records.TOUCH, rows)
    placed = records.placed(session, record, users)
    return Looked([placed.get(user) for user in users], records.outlook(session, record, now))


def _redeem(
    record: Record, found: dict[str, Ticket], user: str, pass_id: str, now: int
) -> Redeemed:
    """The answer; the ticket in `found` and the counts of the record are changed with it."""
    ticket = found.get(user)
    if ticket is None or not pass_id or ticket.pass_id != pass_id:
        return Redeemed(EnterAnswer.INVALID)
    if ticket.entered is not None:
        return Redeemed(EnterAnswer.USED, ticket)
    overdue = ticket.until is not None and ticket.until <= now
    if ticket.state is not TicketState.ADMITTED or overdue:
        return Redeemed(EnterAnswer.INVALID)
    ttl = records.settings_of(record.settings).session_ttl
    entered = msgspec.structs.replace(
        ticket,
        state=TicketState.ENTERED,
        entered=now,
        until=None if ttl is None else now + ttl,
    )
    found[user] = entered
    record.admitted -= 1
    record.entered += 1
    return Redeemed(EnterAnswer.ENTERED, entered)
