"""Waiting rooms in tables: each method of the port is a step in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.model import room_steps as steps
from penstock.model.room import DEFAULT_LANE, Room, RoomFigures, RoomSettings, RoomState
from penstock.model.room_admission import LOOK_EVERY_MS
from penstock.model.room_steps import RoomRecord
from penstock.model.ticket import (
    JoinAnswer,
    Joined,
    JoinedAll,
    Joining,
    Looked,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener, TurnListener, WaitingVisitors
from penstock.stores.sql import room_rows as rows
from penstock.stores.sql.room_promote import promote
from penstock.stores.sql.room_rows import StoredRoom
from penstock.stores.sql.tx import Runner, Tx
from penstock.time.clock import Clock

_SECRET = "entry-token"  # noqa: S105 - a row's name


class SqlRooms:
    """A RoomStore beside the messages, in the same database and the same transactions."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        self._listeners: list[RoomListener] = []
        self._seen_version: object = None
        """The database's version when turns_elsewhere last read it."""

    @property
    def clock(self) -> Clock:
        return self._clock

    # --- rooms ---

    async def put_room(
        self, name: str, settings: RoomSettings, state: RoomState | None, now: int
    ) -> Room:
        def work(tx: Tx) -> Room:
            stored = rows.load(tx, name)
            if stored is None:
                record = steps.configure(None, name, settings, state, now)
                rows.make(tx, record, now)
                return record.room
            record = steps.configure(stored.record, name, settings, state, now)
            for lane in steps.lost_lanes(stored.record, settings):
                rows.move_lane(tx, stored.id, lane, DEFAULT_LANE)
            rows.save(tx, stored.id, record, now)
            return record.room

        room = await self._runner.submit(work)
        self._tell(name)
        return room

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        def work(tx: Tx) -> list[Room | None]:
            found = [rows.load(tx, name, lock=False) for name in names]
            return [None if stored is None else stored.record.room for stored in found]

        return await self._runner.submit(work, writes=False)

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        return await self._runner.submit(
            lambda tx: [name for (name,) in tx.query("room_names", (after, limit))], writes=False
        )

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        return await self._change(
            name, now, lambda _, stored: steps.set_state(stored.record, state)
        )

    async def reset(self, name: str, now: int) -> Room | None:
        def change(tx: Tx, stored: StoredRoom) -> RoomRecord:
            for statement in ("clear_tickets", "clear_blocks", "clear_lanes"):
                tx.execute(statement, (stored.id,))
            return steps.reset(stored.record)

        return await self._change(name, now, change)

    async def _change(
        self, name: str, now: int, change: Callable[[Tx, StoredRoom], RoomRecord]
    ) -> Room | None:
        def work(tx: Tx) -> Room | None:
            stored = rows.load(tx, name)
            if stored is None:
                return None
            record = change(tx, stored)
            rows.save(tx, stored.id, record, now)
            return record.room

        room = await self._runner.submit(work)
        self._tell(name)
        return room

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        def work(tx: Tx) -> JoinedAll | None:
            stored = rows.load(tx, name)
            return None if stored is None else _join(tx, stored, joining, now)

        joined = await self._runner.submit(work, rows=2 * len(joining))
        if joined is not None and joined.outlook.free > 0:
            self._tell(name)
        return joined

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        def work(tx: Tx) -> Looked | None:
            stored = rows.load(tx, name, lock=False)
            return None if stored is None else _look(tx, stored, users, now, alive=alive)

        return await self._runner.submit(work, rows=len(users) * alive, writes=alive)

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        def work(tx: Tx) -> Looked | None:
            stored = rows.load(tx, name)
            if stored is None:
                return None
            known = rows.tickets(tx, stored.id, users).values()
            inside = [ticket for ticket in known if ticket.state is TicketState.ENTERED]
            beating = [steps.heartbeat(stored.record, ticket, now) for ticket in inside]
            rows.put_tickets(tx, stored.id, beating, now)
            return _look(tx, stored, users, now, alive=True)

        return await self._runner.submit(work, rows=len(users))

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        def work(tx: Tx) -> list[Redeemed] | None:
            stored = rows.load(tx, name)
            if stored is None:
                return None
            known = rows.tickets(tx, stored.id, [user for user, _ in passes])
            step = steps.enter(stored.record, known, passes, now)
            rows.put_tickets(tx, stored.id, step.tickets, now)
            tx.execute("save_tally_only", (rows.tally_text(step.record), stored.id))
            return step.answer

        return await self._runner.submit(work, rows=2 * len(passes))

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        def work(tx: Tx) -> list[Ticket | None] | None:
            stored = rows.load(tx, name)
            if stored is None:
                return None
            known = rows.tickets(tx, stored.id, users)
            step = steps.end(stored.record, known.values(), state)
            waited = [
                known[one.user]
                for one in step.tickets
                if known[one.user].state is TicketState.WAITING
            ]
            rows.leave_line(tx, stored.id, waited)
            rows.put_tickets(tx, stored.id, step.tickets, now)
            tx.execute("save_tally", (rows.tally_text(step.record), now, stored.id))
            known |= {ticket.user: ticket for ticket in step.tickets}
            return [known.get(user) for user in users]

        tickets = await self._runner.submit(work, rows=2 * len(users))
        self._tell(name)
        return tickets

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        return await self._runner.submit(lambda tx: promote(tx, names, now, limit), rows=len(names))

    # --- figures and wake-ups ---

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        def work(tx: Tx) -> list[RoomFigures | None]:
            return [_figures(tx, rows.load(tx, name, lock=False), now) for name in names]

        return await self._runner.submit(work, writes=False)

    async def take_due(self, now: int, limit: int) -> list[str]:
        def look(tx: Tx) -> list[tuple[int, str]]:
            return tx.query("due_rooms", (now, limit))

        if not await self._runner.submit(look, writes=False):
            return []  # the usual case costs no write

        def work(tx: Tx) -> list[str]:
            due = look(tx)
            tx.many("room_due_at", [(now + LOOK_EVERY_MS, number) for number, _ in due])
            return [name for _, name in due]

        return await self._runner.submit(work, rows=limit)

    async def discover(self, now: int) -> int | None:
        """Always None: no other program writes here."""

    def listen_rooms(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    def listen_turns(self, listener: TurnListener) -> None:
        """Does nothing: callers must poll turns_elsewhere."""

    async def turns_elsewhere(self, waiting: WaitingVisitors) -> dict[str, list[str]]:
        def work(tx: Tx) -> dict[str, list[str]]:
            version = tx.foreign_version()
            if version == self._seen_version:
                return {}
            self._seen_version = version
            return {room: _turned(tx, room, users) for room, users in waiting().items()}

        return await self._runner.submit(work, writes=False)

    async def secret(self, proposed: bytes) -> bytes:
        def work(tx: Tx) -> bytes:
            tx.execute("propose_secret", (_SECRET, proposed))
            return bytes(tx.one("secret", (_SECRET,))[0])

        return await self._runner.submit(work)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


def _join(tx: Tx, stored: StoredRoom, joining: Sequence[Joining], now: int) -> JoinedAll:
    number, record = stored
    lanes = rows.lanes(tx, stored)
    known = rows.tickets(tx, number, [one.user for one in joining])
    step = steps.join(record, known, lanes, joining, now)
    if step.tickets:
        rows.put_tickets(tx, number, step.tickets, now)
    if step.record is not record:
        new = [one.ticket for one in step.answer if one.answer is JoinAnswer.NEW and one.ticket]
        rows.line_up(tx, number, new)
        for ticket in new:
            lanes[ticket.lane] += 1
        tx.execute("save_tally", (rows.tally_text(step.record), now, number))
    outlook = steps.outlook(step.record, lanes, now)
    return JoinedAll(_placed(tx, number, step.answer), outlook)


def _placed(tx: Tx, room: int, answers: Sequence[Joined]) -> list[Joined]:
    """The answers, with the place of every ticket."""
    unplaced = {
        one.ticket.user for one in answers if one.ticket is not None and one.ticket.ahead is None
    }
    if not unplaced:
        return list(answers)
    found = rows.placed(tx, room, list(unplaced))
    return [
        Joined(one.answer, found.get(one.ticket.user, one.ticket)) if one.ticket else one
        for one in answers
    ]


def _look(tx: Tx, stored: StoredRoom, users: Sequence[str], now: int, *, alive: bool) -> Looked:
    if alive:
        room = stored.id
        tx.many("see_ticket", [{"now": now, "room": room, "user": user} for user in users])
    placed = rows.placed(tx, stored.id, users)
    outlook = steps.outlook(stored.record, rows.lanes(tx, stored), now)
    return Looked([placed.get(user) for user in users], outlook)


def _figures(tx: Tx, stored: StoredRoom | None, now: int) -> RoomFigures | None:
    if stored is None:
        return None
    return steps.figures(stored.record, sum(rows.lanes(tx, stored).values()), now)


def _turned(tx: Tx, room: str, users: Sequence[str]) -> list[str]:
    """The users among these who are no longer in line."""
    stored = rows.load(tx, room, lock=False)
    waiting: set[str] = set()
    if stored is not None:
        values = {"users": tx.array(users), "room": stored.id}
        found = tx.query("ticket_states", values)
        waiting = {user for user, state in found if state == TicketState.WAITING}
    return [user for user in users if user not in waiting]
