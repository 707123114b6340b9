"""What rooms did, in the order they did it, held against what they promise.

The rooms in memory are beside the store's, or are the store's: what nobody is told, such as who
gave up waiting, is read off them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState
from penstock.model.room_admission import lot
from penstock.model.ticket import (
    HOLDS_SLOT,
    LIVE,
    EnterAnswer,
    JoinAnswer,
    JoinedAll,
    Joining,
    Looked,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.stores.memory.rooms import MemoryRooms
from tests.simulation.entries import EntryStream
from tests.simulation.journal import Journal
from tests.simulation.sync import now_or_never

CAPACITY = "5 admitted + entered ≤ capacity"
ONE_TICKET = "5 one live ticket a user and room"
FIFO = "5 first come first in"
IDLE = "5 no slot idle while somebody waits"
SUM = "5 joined = sum over states"
DENSE = "5 positions dense"
ONCE = "5 a token is redeemed at most once and never after release"
EXIT = "5 an exit frees exactly one slot"
SHUT = "5 paused admits nobody"
KEEPS = "5 whoever asks keeps the place"
LOTS = "5 before the opening lots are drawn, after it whoever comes first"
EPOCH = "5 after a reset no earlier token is good"
TWIN = "the store's rooms and their model agree"


class Visits:
    """Told of every step of a room that took effect."""

    def __init__(
        self, journal: Journal, model: MemoryRooms, stream: EntryStream | None, *, beside: bool
    ) -> None:
        self._journal = journal
        self._model = model
        self.stream = stream
        """Where promotions go on to others; None: nobody waits for them."""
        self._beside = beside
        """The store is another one: the model does every step too, and must answer the same."""
        self._rooms: dict[str, Room] = {}
        """As the store last answered."""
        self._redeemed: set[tuple[str, str]] = set()
        self._over: set[str] = set()
        """Passes whose slot was given back."""
        self._last: dict[str, Ticket] = {}
        """User → the ticket as it was last told."""
        self._latest = 0
        """The latest moment at which anybody's time may have been found to be over."""
        self._number = 0
        """The last place that was given out in order."""
        self.passes: dict[str, Ticket] = {}
        """Every admission by its pass."""
        self.opens_at: int | None = None

    def put_room(
        self,
        who: str,
        name: str,
        settings: RoomSettings,
        state: RoomState | None,
        now: int,
        got: Room,
    ) -> None:
        self._journal.note(who, "room", name, f"capacity {settings.capacity} {got.state}")
        self._rooms[name] = got
        if self._beside:
            self._same(now_or_never(self._model.put_room(name, settings, state, now)), got)

    def set_state(self, who: str, name: str, state: RoomState, now: int, got: Room | None) -> None:
        self._journal.note(who, "room", name, state.value)
        if got is not None:
            self._rooms[name] = got
        if self._beside:
            self._same(now_or_never(self._model.set_state(name, state, now)), got)

    def reset(self, who: str, name: str, now: int, got: Room | None) -> None:
        self._journal.note(who, "reset", name, "" if got is None else f"epoch {got.epoch}")
        if got is not None:
            if (before := self._rooms.get(name)) is not None and got.epoch <= before.epoch:
                self._journal.fail(EPOCH, name, f"epoch {before.epoch}, then {got.epoch}")
            self._rooms[name] = got
            self._last.clear()
        if self._beside:
            self._same(now_or_never(self._model.reset(name, now)), got)

    def join(
        self, who: str, name: str, joining: Sequence[Joining], now: int, got: JoinedAll | None
    ) -> None:
        if self._beside:
            self._same(now_or_never(self._model.join(name, joining, now)), got)
        for one, joined in zip(joining, () if got is None else got.answers, strict=got is not None):
            self._journal.note(who, "join", one.user, joined.answer.value)
            if joined.answer is JoinAnswer.NEW and joined.ticket is not None:
                self._check_new(name, joined.ticket, now)
                self._check_places(name, joined.ticket)
            self._saw(joined.ticket)

    def look(
        self, name: str, users: Sequence[str], now: int, got: Looked | None, *, alive: bool
    ) -> None:
        if self._beside:
            self._same(now_or_never(self._model.look(name, users, now, alive=alive)), got)
        for ticket in () if got is None else got.tickets:
            if ticket is not None and ticket.state is TicketState.WAITING:
                self._check_places(name, ticket)
            self._saw(ticket)

    def heartbeat(self, name: str, users: Sequence[str], now: int, got: Looked | None) -> None:
        if self._beside:
            self._same(now_or_never(self._model.heartbeat(name, users, now)), got)
        for ticket in () if got is None else got.tickets:
            self._saw(ticket)

    def enter(
        self,
        who: str,
        name: str,
        passes: Sequence[tuple[str, str]],
        now: int,
        got: list[Redeemed] | None,
    ) -> None:
        if self._beside:
            self._same(now_or_never(self._model.enter(name, passes, now)), got)
        for (user, pass_id), redeemed in zip(passes, got or (), strict=got is not None):
            self._journal.note(who, "enter", user, f"{redeemed.answer.value} {pass_id}")
            if redeemed.answer is EnterAnswer.ENTERED:
                self._check_entered(name, user, pass_id, now)
                self._saw(redeemed.ticket)
        self._check_room(name)

    def leave(
        self,
        who: str,
        name: str,
        users: Sequence[str],
        now: int,
        state: TicketState,
        got: list[Ticket | None] | None,
    ) -> None:
        if self._beside:
            self._same(now_or_never(self._model.leave(name, users, now, state)), got)
        for user, ticket in zip(users, got or (), strict=got is not None):
            self._journal.note(who, "leave", user, "" if ticket is None else ticket.state.value)
            if ticket is not None and ticket.state in LIVE:
                self._journal.fail(EXIT, user, f"left, but is {ticket.state}")
            if ticket is not None and ticket.pass_id:
                self._over.add(ticket.pass_id)
            self._saw(ticket)
        self._check_room(name)

    def promote(
        self, who: str, names: Sequence[str], now: int, limit: int, got: list[Promotion]
    ) -> None:
        if self._beside:
            told = [replace(one, admitted=tuple(one.admitted)) for one in got]
            self._same(now_or_never(self._model.promote(names, now, limit)), told)
        self._latest = max(now, self._latest)
        for promotion in got:
            if promotion.expired:
                self._journal.note(who, "expired", promotion.room, str(promotion.expired))
            for ticket in promotion.admitted:
                self.passes[ticket.pass_id] = ticket
                self._saw(ticket)
                if self.stream is not None:
                    self.stream.add(promotion.room, ticket)
                self._journal.note(who, "admit", ticket.user, ticket.pass_id)
            if promotion.admitted:
                self._check_admitted(promotion, now)
            self._check_room(promotion.room)

    def figures(self, names: Sequence[str], now: int, got: list[RoomFigures | None]) -> None:
        if self._beside:
            self._same(now_or_never(self._model.figures(names, now)), got)

    def idle(self, name: str, now: int) -> str:
        """Why nobody was let in although there is a slot; empty when all is well."""
        held = self._model._rooms.get(name)
        if held is None:  # it was to open at a moment that a clock set forward had passed
            return ""
        room, tally = held.record.room, held.record.tally
        free = room.settings.capacity - tally.in_use
        if room.state_at(now) is RoomState.OPEN and free > 0 and (line := held.waiting()):
            return f"{free} slots are free and {line[0].user} waits"
        return ""

    def _check_admitted(self, promotion: Promotion, now: int) -> None:
        held = self._model._rooms[promotion.room]
        if self._rooms[promotion.room].state_at(now) is not RoomState.OPEN:
            self._journal.fail(SHUT, promotion.room, f"{len(promotion.admitted)} let in")
        in_use, capacity = held.record.tally.in_use, held.record.room.settings.capacity
        if in_use > capacity:
            told = f"{in_use} of {capacity}"
            self._journal.fail(CAPACITY, promotion.room, told)
        for ticket in promotion.admitted:
            line = held.waiting(ticket.lane)
            if line and (line[0].number, line[0].user) < (ticket.number, ticket.user):
                self._journal.fail(FIFO, ticket.user, f"before {line[0].user}")

    def _saw(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            self._last[ticket.user] = ticket

    def _check_new(self, name: str, ticket: Ticket, now: int) -> None:
        """A new ticket needs that the last one is over, or may be by now."""
        room = self._rooms[name]
        last = self._last.get(ticket.user)
        if last is not None and last.state in LIVE:
            grace = room.settings.wait_grace or 0
            ends = last.until if last.seen is None else last.seen + grace
            if ends is not None and max(now, self._latest) < ends:
                self._journal.fail(ONE_TICKET, ticket.user, f"{last.state}, and lined up anew")
        if room.settings.lottery and room.state_at(now) is RoomState.SCHEDULED:
            if ticket.number != lot(room.settings.seed, ticket.user):
                self._journal.fail(LOTS, ticket.user, f"came before, and drew {ticket.number}")
        elif ticket.number <= self._number:
            self._journal.fail(LOTS, ticket.user, f"{ticket.number} after {self._number}")
        else:
            self._number = ticket.number

    def _check_entered(self, name: str, user: str, pass_id: str, now: int) -> None:
        if (name, pass_id) in self._redeemed:
            self._journal.fail(ONCE, user, f"{pass_id} was let in twice")
        self._redeemed.add((name, pass_id))
        admission = self.passes.get(pass_id)
        if pass_id in self._over or admission is None or admission.user != user:
            self._journal.fail(ONCE, user, f"{pass_id} is not an admission that holds a slot")
        elif admission.until is not None and admission.until <= now:
            self._journal.fail(ONCE, user, f"{pass_id} ended {now - admission.until} ms before")
        if not pass_id.startswith(f"{self._rooms[name].epoch}-"):
            self._journal.fail(EPOCH, user, f"{pass_id} was let in")

    def _check_places(self, name: str, ticket: Ticket) -> None:
        users = [other.user for other in self._model._rooms[name].waiting(ticket.lane)]
        if ticket.user not in users or users.index(ticket.user) != ticket.ahead:
            self._journal.fail(DENSE, ticket.user, f"told {ticket.ahead}, the line is {users}")

    def _check_room(self, name: str) -> None:
        held = self._model._rooms.get(name)
        if held is None:
            return
        live = sum(ticket.state in LIVE for ticket in held.tickets.values())
        tally = held.record.tally
        ended = tally.left + tally.expired + tally.revoked
        if tally.joined != live + ended:
            self._journal.fail(SUM, name, f"{tally.joined} joined, {live} live, {ended} ended")
        holding = sum(ticket.state in HOLDS_SLOT for ticket in held.tickets.values())
        if tally.in_use != holding:
            self._journal.fail(EXIT, name, f"{tally.in_use} slots in use, {holding} hold one")

    def _same(self, mine: object, theirs: object) -> None:
        if mine != theirs:
            self._journal.fail(TWIN, "", f"the model says {mine}, the store {theirs}")
