"""The promoter in virtual time: at once, every second, and never more than the queue holds."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from penstock.contrib.dispatcher.dispatch import ABANDONED_MS, TTL_KNOWN_MS, TTLS_KNOWN, Dispatcher
from penstock.flow.observe import Observer
from penstock.model.errors import (
    InvalidMessage,
    InvalidToken,
    RoomClosed,
    StoreCorrupt,
    StoreUnavailable,
    TokenUsed,
    UnknownThing,
)
from penstock.model.room import Rate, RoomDraft, RoomSettings, RoomState
from penstock.model.ticket import Dispatch, Entry, Joining, Promotion, TicketState
from penstock.rooms.enter import Enter
from penstock.rooms.join import Join
from penstock.rooms.leave import Leave
from penstock.rooms.operate import Operate
from penstock.rooms.promote import LOOK_MS, NO_ROOM_MS, Promoter
from penstock.rooms.wait import Wait
from penstock.settings import RoomsSettings
from penstock.stores.memory.rooms import MemoryRooms
from penstock.testing.clock import ManualClock
from penstock.tokens import JwtSigner, SigningKey

KEY = SigningKey("k1", b"0" * 32)


class Shaky(MemoryRooms):
    """A store that can go away, or be held up in its promotions."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.away = False
        self.broken: set[str] = set()
        """Rooms in whose keys another program has written what nobody can read."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.looks: dict[str, list[int]] = defaultdict(list)
        """Room → when it was promoted."""

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        for name in names:
            self.looks[name].append(now)
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("gone")
        if self.broken.intersection(names):
            raise StoreCorrupt("not a line")
        return await super().promote(names, now, limit)


@asynccontextmanager
async def promoting(store: Shaky, *, workers: int = 2, queue: int = 5) -> AsyncIterator[Promoter]:
    promoter = Promoter(store, Observer(), workers=workers, queue=queue)
    task = asyncio.create_task(promoter.run())
    try:
        yield promoter
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def line(store: MemoryRooms, room: str, *users: str, settings: RoomSettings) -> None:
    now = store.clock.now()
    await store.put_room(room, settings, None, now)
    await store.join(room, [Joining(user) for user in users], now)


async def state(store: MemoryRooms, room: str, user: str) -> TicketState | None:
    looked = await store.look(room, [user], store.clock.now())
    assert looked is not None
    ticket = looked.tickets[0]
    return None if ticket is None else ticket.state


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Shaky:
    return Shaky(clock)


async def test_a_slot_that_becomes_free_is_taken_at_once(store: Shaky, clock: ManualClock) -> None:
    async with promoting(store):
        await line(store, "r", "a", "b", settings=RoomSettings(capacity=1))
        await clock.settle()
        assert await state(store, "r", "a") is TicketState.ADMITTED
        assert await state(store, "r", "b") is TicketState.WAITING
        await store.leave("r", ["a"], clock.now())
        await clock.settle()
        assert await state(store, "r", "b") is TicketState.ADMITTED


async def test_time_alone_gives_slots_back(store: Shaky, clock: ManualClock) -> None:
    async with promoting(store):
        await line(store, "r", "a", "b", settings=RoomSettings(capacity=1, claim_ttl=60_000))
        await clock.advance(59_999)
        assert await state(store, "r", "b") is TicketState.WAITING
        await clock.advance(1_001)
        assert await state(store, "r", "a") is TicketState.EXPIRED
        assert await state(store, "r", "b") is TicketState.ADMITTED


async def test_a_clock_set_back_while_the_store_is_asked_stops_no_feeder(
    store: Shaky, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    take_due, asked = store.take_due, 0

    async def slowly(now: int, limit: int) -> list[str]:
        nonlocal asked
        asked += 1
        await gate.wait()
        return await take_due(now, limit)

    monkeypatch.setattr(store, "take_due", slowly)
    await line(store, "r", "a", settings=RoomSettings(capacity=1))
    async with promoting(store):
        await clock.settle()
        clock.jump(-300_000)
        gate.set()
        await clock.settle()
        assert asked == 1
        await clock.advance(3 * LOOK_MS)
    assert asked > 1


async def test_a_store_without_rooms_is_seldom_asked_until_there_is_one(
    store: Shaky, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    take_due = store.take_due
    began = clock.now()

    async def watched(now: int, limit: int) -> list[str]:
        asked.append(now - began)
        return await take_due(now, limit)

    monkeypatch.setattr(store, "take_due", watched)
    async with promoting(store):
        await clock.advance(2 * NO_ROOM_MS)
        assert asked == [0, LOOK_MS, LOOK_MS + NO_ROOM_MS]
        await line(store, "r", "a", settings=RoomSettings(capacity=1))
        await clock.settle()
        assert await state(store, "r", "a") is TicketState.ADMITTED
        await clock.advance(2 * NO_ROOM_MS)
        assert all(after - before <= LOOK_MS for before, after in pairwise(asked[-5:]))


async def test_a_rate_is_kept_to_the_moment(store: Shaky, clock: ManualClock) -> None:
    async with promoting(store) as promoter:
        users = [f"u{n}" for n in range(50)]
        settings = RoomSettings(capacity=100, admit_rate=Rate(10, 1000), wait_grace=None)
        await line(store, "r", *users, settings=settings)
        seen = []
        for _ in range(6):
            await clock.advance(500)
            seen.append(promoter.figures.promotions)
        assert seen == [6, 11, 16, 21, 26, 31]


async def test_a_room_nobody_speaks_of_is_still_looked_at(store: Shaky, clock: ManualClock) -> None:
    await line(store, "r", "a", settings=RoomSettings(capacity=1))  # before anybody listens
    async with promoting(store):
        await clock.advance(1_000)
        assert await state(store, "r", "a") is TicketState.ADMITTED


async def test_every_room_is_looked_at_more_than_once_a_second(
    store: Shaky, clock: ManualClock
) -> None:
    names = [f"r{n}" for n in range(120)]  # more than one task takes
    for name in names:
        await store.put_room(name, RoomSettings(), None, clock.now())
    async with promoting(store):
        await clock.advance(10_000)
    for name in names:
        looks = store.looks[name]
        assert max(after - before for before, after in pairwise(looks)) <= 850
        assert clock.now() - looks[-1] <= 850


async def test_a_full_queue_makes_rooms_wait_and_loses_none(
    store: Shaky, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.gate.clear()
    async with promoting(store, workers=1, queue=2) as promoter:
        names = [f"r{n}" for n in range(400)]
        for name in names:
            await line(store, name, "a", settings=RoomSettings(capacity=1))
        await clock.settle()
        assert promoter.queue_size <= promoter.queue_limit == 2
        assert promoter.figures.active == 1
        store.gate.set()
        await clock.advance(3_000)
        assert promoter.figures.promotions == 400
    assert "task queue is 100 % full" in caplog.text


async def test_it_warns_when_the_task_queue_is_80_percent_full(
    store: Shaky, caplog: pytest.LogCaptureFixture
) -> None:
    promoter = Promoter(store, Observer(), queue=10)
    for number in range(8):
        await promoter._put((f"r{number}",))
    assert "task queue" not in caplog.text
    await promoter._put(("r8",))
    assert "task queue is 80 % full (8 of 10)" in caplog.text


def test_the_dispatchers_defaults_are_kept() -> None:
    rooms = RoomsSettings()
    assert (rooms.workers, rooms.queue, rooms.batch) == (10, 100, 10)
    assert (rooms.poll, rooms.capacity) == (2_000, 1000)


async def test_a_store_that_was_away_is_asked_again(
    store: Shaky, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with promoting(store) as promoter:
        store.away = True
        await line(store, "r", "a", settings=RoomSettings(capacity=1))
        await clock.advance(2_500)
        assert promoter.figures.errors > 0
        assert await state(store, "r", "a") is TicketState.WAITING
        store.away = False
        await clock.advance(2_000)
        assert await state(store, "r", "a") is TicketState.ADMITTED
    assert "store away" in caplog.text


async def test_a_room_that_cannot_be_read_keeps_no_other_waiting(
    store: Shaky, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.broken = {"b"}
    for name in "abc":  # before anybody listens: they come up together
        await line(store, name, "u", settings=RoomSettings(capacity=1))
    async with promoting(store) as promoter:
        await clock.settle()
        assert [await state(store, name, "u") for name in "abc"] == [
            TicketState.ADMITTED,
            TicketState.WAITING,
            TicketState.ADMITTED,
        ]
        assert promoter.figures.errors == 1
    assert [r.getMessage() for r in caplog.records] == [
        "room b: promotion failed; it is retried at the next round"
    ]


async def test_it_says_how_many_a_second(
    store: Shaky, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with promoting(store):
            await line(store, "r", "a", "b", "c", settings=RoomSettings(capacity=2))
            await clock.advance(3_000)
    assert [r.getMessage() for r in caplog.records] == ["Promotions per second: 2"]


async def test_the_line_is_not_lost_while_nobody_looked_after_it(
    store: Shaky, clock: ManualClock
) -> None:
    settings = RoomSettings(capacity=0, wait_grace=30_000)
    await line(store, "r", "a", settings=settings)
    clock.jump(3_600_000)  # an outage of ours
    async with promoting(store):
        await clock.advance(29_000)
        assert await state(store, "r", "a") is TicketState.WAITING
        await clock.advance(3_000)
        assert await state(store, "r", "a") is TicketState.EXPIRED


# --- the verbs ---


class Verbs:
    def __init__(self, store: Shaky) -> None:
        signer = JwtSigner([KEY])
        observer = Observer()
        self.join = Join(store, signer, observer, "here")
        self.wait = Wait(store, signer)
        self.enter = Enter(store, signer, observer)
        self.leave = Leave(store, observer)
        self.operate = Operate(store, make_seed=lambda: "seed")
        self.promoter = Promoter(store, observer)


async def test_many_who_join_at_once_are_one_call(store: Shaky) -> None:
    verbs = Verbs(store)
    await verbs.operate.put("r", RoomDraft(capacity=1))
    calls = 0
    real = store.join

    async def counted(name: str, joining: Sequence[Joining], now: int) -> object:
        nonlocal calls
        calls += 1
        return await real(name, joining, now)

    store.join = counted  # type: ignore[method-assign, assignment]  # counts, then the same
    places = await asyncio.gather(*(verbs.join.join("r", f"u{n}") for n in range(150)))
    assert [place.ahead for place in places] == list(range(150))
    assert calls == 1


async def test_each_refusal_has_its_name(store: Shaky) -> None:
    verbs = Verbs(store)
    with pytest.raises(UnknownThing):
        await verbs.join.join("r", "a")
    await verbs.operate.put("r", RoomDraft(capacity=1))
    with pytest.raises(InvalidMessage):
        await verbs.join.join("r", "")
    with pytest.raises(InvalidMessage):
        await verbs.join.join("r", "a", lane="none")
    with pytest.raises(UnknownThing):
        await verbs.wait.look("r", "a")
    with pytest.raises(UnknownThing):
        await verbs.leave.leave("r", "a")
    with pytest.raises(InvalidMessage):
        await verbs.operate.put("a/b", RoomDraft())
    await verbs.operate.set_state("r", RoomState.CLOSED)
    with pytest.raises(RoomClosed):
        await verbs.join.join("r", "a")
    for call in (verbs.operate.reset, verbs.operate.get):
        with pytest.raises(UnknownThing):
            await call("none")


async def test_before_the_draw_nobody_has_a_place(store: Shaky, clock: ManualClock) -> None:
    verbs = Verbs(store)
    await verbs.operate.put("r", RoomDraft(lottery=True, state=RoomState.SCHEDULED))
    place = await verbs.join.join("r", "a")
    assert (place.ahead, place.eta) == (None, None)
    room = (await verbs.operate.get("r")).room
    await verbs.operate.put("r", RoomDraft(lottery=True, capacity=5))
    again = (await verbs.operate.get("r")).room
    assert room.settings.seed == again.settings.seed == "seed"


async def test_an_expired_token_is_void_even_before_anybody_swept(
    store: Shaky, clock: ManualClock
) -> None:
    verbs = Verbs(store)
    await verbs.operate.put("r", RoomDraft(capacity=1, claim_ttl="10s"))
    await verbs.join.join("r", "a")
    await verbs.promoter.promote(["r"])
    token = (await verbs.wait.look("r", "a")).token
    assert token is not None
    clock.jump(10_000)
    with pytest.raises(InvalidToken):
        await verbs.enter.enter("r", token)


async def test_a_token_works_once(store: Shaky) -> None:
    verbs = Verbs(store)
    await verbs.operate.put("r", RoomDraft(capacity=1))
    await verbs.join.join("r", "a")
    await verbs.promoter.promote(["r"])
    token = (await verbs.wait.look("r", "a")).token or ""
    assert (await verbs.enter.enter("r", token)).state is TicketState.ENTERED
    with pytest.raises(TokenUsed):
        await verbs.enter.enter("r", token)
    await verbs.leave.revoke("r", "a")
    with pytest.raises(TokenUsed):
        await verbs.enter.enter("r", token)


# --- tokens ---


def test_a_key_is_changed_without_voiding_tokens() -> None:
    old, new = SigningKey("old", b"a" * 32), SigningKey("new", b"b" * 32)
    token = JwtSigner([old]).sign("r", "u", "1-1", 100, 200)
    assert JwtSigner([new, old]).read(token, "r", 150_000) == ("u", "1-1")
    assert JwtSigner([new]).read(token, "r", 150_000) is None
    assert JwtSigner([SigningKey("old", b"c" * 32)]).read(token, "r", 150_000) is None


@pytest.mark.parametrize(("now", "good"), [(99_999, False), (100_000, True), (200_000, False)])
def test_a_token_has_its_time(now: int, good: bool) -> None:
    signer = JwtSigner([KEY])
    token = signer.sign("r", "u", "1-1", 100, 200)
    assert (signer.read(token, "r", now) is not None) is good
    assert signer.read(token, "other", now) is None
    assert JwtSigner([KEY], "other").read(token, "r", now) is None


def test_a_tickets_secret_is_good_for_that_ticket_alone() -> None:
    signer = JwtSigner([KEY])
    secret = signer.ticket_secret("r", 1, "u", 7)
    assert signer.is_ticket_secret(secret, "r", 1, "u", 7)
    for room, epoch, user, number in (("s", 1, "u", 7), ("r", 2, "u", 7), ("r", 1, "v", 7)):
        assert not signer.is_ticket_secret(secret, room, epoch, user, number)
    assert not signer.is_ticket_secret(secret, "r", 1, "u", 8)
    assert not signer.is_ticket_secret("ü", "r", 1, "u", 7)


# --- the dispatcher ---


class FakeEntries:
    """An EntryQueue in memory."""

    def __init__(self) -> None:
        self.fresh: list[Entry] = []
        self.abandoned: list[Entry] = []
        self.sent: list[Dispatch] = []
        self.trims = 0
        self.clock: ManualClock | None = None

    async def take(self, limit: int, wait: int) -> list[Entry]:
        assert self.clock is not None
        if not self.fresh:
            await self.clock.sleep_until(self.clock.now() + wait)
        taken, self.fresh = self.fresh[:limit], self.fresh[limit:]
        return taken

    async def take_abandoned(self, idle: int, limit: int) -> list[Entry]:
        assert idle == ABANDONED_MS
        taken, self.abandoned = self.abandoned[:limit], self.abandoned[limit:]
        return taken

    async def dispatch(self, dispatches: Sequence[Dispatch]) -> int:
        self.sent += dispatches
        return len(dispatches)

    async def trim(self) -> int:
        self.trims += 1
        return 0

    async def depth(self) -> int:
        return 0

    async def close(self) -> None: ...


async def test_promotions_become_tokens_and_left_ones_are_taken_over(
    store: Shaky, clock: ManualClock
) -> None:
    signer, entries = JwtSigner([KEY]), FakeEntries()
    entries.clock = clock
    dispatcher = Dispatcher(store, entries, signer, Observer(), batch=10, poll=2_000)
    task = asyncio.create_task(dispatcher.run())
    now = clock.now()
    made = [
        Entry(id=f"{n}-0", user=f"u{n}", room="r", instance="i", promoted=now) for n in range(25)
    ]
    entries.fresh, entries.abandoned = made[:12], made[12:]
    await clock.advance(6_000)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(one.entry.id for one in entries.sent) == sorted(entry.id for entry in made)
    assert entries.trims == 1
    for one in entries.sent:
        assert signer.read(one.token, "r", now) == (one.entry.user, one.entry.id)


async def test_what_a_dispatcher_remembers_does_not_grow_with_every_room_ever_seen(
    store: Shaky, clock: ManualClock
) -> None:
    observer, entries = Observer(), FakeEntries()
    entries.clock = clock
    dispatcher = Dispatcher(store, entries, JwtSigner([KEY]), observer)
    for number in range(5 * TTLS_KNOWN):
        room = f"sale-{number}"
        entry = Entry(id="1-0", user="u", room=room, instance="i", promoted=clock.now())
        await dispatcher.dispatch([entry])
        if number % TTLS_KNOWN == 0:
            await clock.advance(TTL_KNOWN_MS)
    assert len(dispatcher._ttls) <= 2 * TTLS_KNOWN
    assert dict(observer.visitors) == {"dispatched": 5 * TTLS_KNOWN}
    assert not observer.counts
