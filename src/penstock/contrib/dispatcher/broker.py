"""A simulated broker: lines visitors up in Redis, waits for tokens, and releases slots.

Like existing brokers it knows the Dispatcher's keys only: `ZADD` into the line first, `HSET` of the
record after, a consumer group of its own on the stream DISPATCH, `DECR` when a visitor leaves. It
also reads the stream ENTRY and notes its releases, to check the Dispatcher's promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec

from penstock.contrib.dispatcher.broker_book import BrokerBook, BrokerTotals, Visitor
from penstock.flow.observe import Observer
from penstock.model.errors import ConfigError, PenstockError, StoreCorrupt, StoreUnavailable
from penstock.redis_kit.address import parse_address
from penstock.redis_kit.connect import Reply, connect
from penstock.redis_kit.errors import GROUP_EXISTS, Vendor
from penstock.settings import Settings
from penstock.stores.redis.rooms.keys import DISPATCH, ENTRY, RoomRunner, decode
from penstock.tokens import JwtSigner, SigningKey

log = logging.getLogger("penstock.sim.broker")

SCHEMES = {"redis", "rediss", "redis+cluster", "rediss+cluster", "redis+unix", "unix"}
JOINED, PROMOTED, ENTERED = "joined", "promoted", "entered"
TICK_SECONDS = 0.02
READ_MS = 500
"""How long a read of a stream waits for the first entry."""
READ_MANY = 500
JOINS_AT_ONCE, LEAVES_AT_ONCE = 8, 4
"""Visitors who join, and who leave, at a time: fewer than there are connections."""
REMEMBERED_MS = 600_000
"""Lifetime of the checks' notes after the last simulated broker."""
AWAY_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The visitors to simulate."""

    instance: str
    events: Sequence[str]
    capacity: int
    """Slots of each event, for the checks."""
    rate: float = 100.0
    """Visitors per second, over all events."""
    session: float = 1.0
    """Mean seconds for which a visitor keeps the slot."""
    record_delay: float = 0.0
    """Seconds between writing the member and its record."""
    count: int | None = None
    """Most visitors."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one event."""

    waiting: bytes
    records: bytes
    users: bytes
    slots: bytes
    entry: bytes
    dispatch: bytes
    watch: bytes
    given: bytes


@asynccontextmanager
async def open_link(settings: Settings) -> AsyncIterator[RoomRunner]:
    """The Redis of the settings' store; ConfigError if rooms are stored elsewhere."""
    scheme = urlsplit(settings.store).scheme
    if scheme not in SCHEMES:
        raise ConfigError(
            f"store: a broker of the Dispatcher needs redis://…, not {scheme}://…; set"
            " PENSTOCK_STORE or name another file with --config",
            field="store",
        )
    address = parse_address(settings.store)
    server = connect(address)
    try:
        yield RoomRunner(server, address.name, address.prefix)
    finally:
        await server.close()


async def signer_of(settings: Settings, runner: RoomRunner) -> JwtSigner:
    """Verifies tokens with the settings' keys, or with the key in the store."""
    keys = [
        SigningKey(key.kid, key.secret.get_secret_value().encode()) for key in settings.rooms.keys
    ]
    if not keys:
        kept = await runner.call("GET", runner.names.secret)
        if kept is None:
            raise ConfigError(
                "rooms.keys: without keys in the settings a dispatcher has to be started first,"
                " which makes one and keeps it in Redis",
                field="rooms.keys",
            )
        keys = [SigningKey("store", kept)]
    return JwtSigner(keys, settings.rooms.issuer)


@dataclass(slots=True)
class _Watch:
    """A stream ENTRY, and the first entry that counts for each of its events."""

    stream: bytes
    since: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def first(self) -> str:
        return "{}-{}".format(*min(self.since.values()))


class BrokerSimulation:
    """Runs one broker; `book.totals` may be read meanwhile."""

    def __init__(
        self,
        load: Load,
        runner: RoomRunner,
        signer: JwtSigner,
        observer: Observer,
        chance: random.Random,
    ) -> None:
        self._load = load
        self._runner = runner
        self._signer = signer
        self._observer = observer
        self._chance = chance
        self._keys = {event: self._keys_of(event) for event in load.events}
        self._group = f"BROKER:{load.instance}"
        self._run = f"{chance.getrandbits(32):08x}"
        self._offset = 0.0
        """Milliseconds by which Redis' clock is ahead of this machine's."""
        self._score = 0.0
        self._joins = asyncio.Semaphore(JOINS_AT_ONCE)
        self._leaves = asyncio.Semaphore(LEAVES_AT_ONCE)
        self._visits: set[asyncio.Task[None]] = set()
        self._all_left = asyncio.Event()
        self.book = BrokerBook(load.instance, load.capacity, {})

    def _keys_of(self, event: str) -> _Keys:
        names = self._runner.names
        room = names.of_room(event)
        watch, given = (
            room[0].replace(b"PENSTOCK_ROOM:", name, 1)
            for name in (b"PENSTOCK_SIM_WATCH:", b"PENSTOCK_SIM_GIVEN:")
        )
        return _Keys(
            waiting=room[2],
            records=room[6],
            users=room[7],
            slots=room[1],
            entry=names.stream(ENTRY, event),
            dispatch=names.stream(DISPATCH, event),
            watch=watch,
            given=given,
        )

    async def run(self, stopping: asyncio.Event, drain: float) -> BrokerTotals:
        """Run until `stopping`, then until every visitor has left, for at most `drain` seconds."""
        watches = await self._begin()
        log.info("%s brokers %s", self._load.instance, ", ".join(self._load.events))
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            streams = {keys.dispatch for keys in self._keys.values()}
            tasks = [
                *(group.create_task(self._watch(watch)) for watch in watches),
                *(group.create_task(self._take(stream)) for stream in streams),
                group.create_task(self._remember()),
            ]
            await self._let_come(stopping)
            seconds = time.monotonic() - began
            await self._drain(drain)
            for task in (*tasks, *self._visits):
                task.cancel()
        return self.book.finished(await self._given_back(), seconds)

    # --- before and after ---

    async def _begin(self) -> list[_Watch]:
        self._offset = await self._measure()
        script = (files("penstock.contrib.dispatcher") / "broker.lua").read_bytes()
        in_use: dict[str, int] = {}
        watches: dict[bytes, _Watch] = {}
        for event, keys in self._keys.items():
            slots, entry = await self._runner.call(
                "EVAL", script, 3, keys.watch, keys.slots, keys.entry, REMEMBERED_MS
            )
            in_use[event] = max(0, int(slots))
            watch = watches.setdefault(keys.entry, _Watch(keys.entry))
            watch.since[event] = _entry_id(entry)
            await self._make_group(keys.dispatch)
        self.book = BrokerBook(self._load.instance, self._load.capacity, in_use)
        return list(watches.values())

    async def _measure(self) -> float:
        best, offset = float("inf"), 0.0
        for _ in range(5):
            before = time.time() * 1000
            seconds, micros = await self._runner.call("TIME")
            after = time.time() * 1000
            if after - before < best:
                best = after - before
                offset = int(seconds) * 1000 + int(micros) / 1000 - (before + after) / 2
        return offset if abs(offset) > best else 0.0  # the same clock, as far as it can be measured

    def _now(self) -> float:
        return time.time() * 1000 + self._offset

    async def _make_group(self, stream: bytes) -> None:
        try:
            await self._runner.call("XGROUP", "CREATE", stream, self._group, "$", "MKSTREAM")
        except StoreCorrupt as exc:
            if GROUP_EXISTS not in exc.message:
                raise

    async def _remember(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                for keys in self._keys.values():
                    await self._runner.call("PEXPIRE", keys.watch, REMEMBERED_MS)
                    await self._runner.call("PEXPIRE", keys.given, REMEMBERED_MS)
            await asyncio.sleep(AWAY_SECONDS)

    async def _drain(self, seconds: float) -> None:
        log.info("no more visitors come; %d are on their way", self.book.unfinished)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.book.unfinished:
                    self._all_left.clear()
                    await self._all_left.wait()
                return
        log.warning(
            "%d visitors had not left when the time to drain was over", self.book.unfinished
        )

    async def _given_back(self) -> Mapping[str, list[float]]:
        found = {}
        for event, keys in self._keys.items():
            moments = await self._runner.call("LRANGE", keys.given, 0, -1)
            found[event] = [float(moment) for moment in moments]
        for stream in {keys.dispatch for keys in self._keys.values()}:
            await self._runner.call("XGROUP", "DESTROY", stream, self._group)
        return found

    # --- visitors come ---

    async def _let_come(self, stopping: asyncio.Event) -> None:
        """Start visitors at the configured rate, late ones together."""
        began, numbers = time.monotonic(), itertools.count(1)
        come = 0
        while not stopping.is_set() and come != self._load.count:
            due = int((time.monotonic() - began) * self._load.rate)
            if self._load.count is not None:
                due = min(due, self._load.count)
            for _ in range(due - come):
                self._start(self._line_up(self._visitor(next(numbers))))
            come = max(come, due)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), TICK_SECONDS)

    def _visitor(self, number: int) -> Visitor:
        event = self._load.events[number % len(self._load.events)]
        now = self._now()
        self._score = max(round(now / 1000, 6), round(self._score + 0.000_001, 6))
        user = f"{self._load.instance}-{self._run}-{number}"
        visitor = Visitor(event, user, self._score, now)
        self.book.lines_up(visitor)
        return visitor

    def _start(self, visit: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(visit)
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _line_up(self, visitor: Visitor) -> None:
        """Write the member first and its record after, as existing brokers do."""
        keys, user = self._keys[visitor.event], visitor.user.encode()
        record = {"instanceId": self._load.instance, "joinedAt": visitor.score}
        async with self._joins:
            await self._surely("ZADD", keys.waiting, f"{visitor.score:.6f}", user)
            self._observer.count(JOINED, "sim")
            if self._load.record_delay:
                await asyncio.sleep(self._load.record_delay)
            await self._surely("HSET", keys.records, user, msgspec.json.encode(record))
            visitor.ready = self._now()
            await self._surely("HSET", keys.users, user, "1")

    async def _surely(self, *command: str | bytes) -> None:
        """Repeat a repeatable command until Redis has executed it."""
        while True:
            try:
                await self._runner.call(*command)
            except StoreUnavailable as exc:
                log.warning("Redis is away, the broker tries again: %s", exc)
                await asyncio.sleep(AWAY_SECONDS)
            else:
                return

    # --- what the streams say ---

    async def _watch(self, watch: _Watch) -> None:
        last: str | bytes = watch.first
        while True:
            reply = await self._read(
                *("XREAD", "COUNT", READ_MANY, "BLOCK", READ_MS, "STREAMS", watch.stream, last)
            )
            for entry_id, fields in reply:
                last = entry_id
                event = decode(fields.get(b"eventId", b""))
                if event in watch.since and _entry_id(entry_id) > watch.since[event]:
                    self._promoted(event, fields, _entry_id(entry_id)[0])

    def _promoted(self, event: str, fields: Mapping[bytes, bytes], moment: int) -> None:
        user, at = decode(fields.get(b"userId", b"")), decode(fields.get(b"promotedAt", b""))
        if self.book.promoted(event, user, at, moment) is not None:
            self._observer.count(PROMOTED, "sim")

    async def _take(self, stream: bytes) -> None:
        consumer = self._load.instance
        while True:
            reply = await self._read(
                *("XREADGROUP", "GROUP", self._group, consumer, "COUNT", READ_MANY),
                *("BLOCK", READ_MS, "STREAMS", stream, ">"),
            )
            for _, fields in reply:
                self._got_token(fields)
            if reply:
                await self._surely("XACK", stream, self._group, *(name for name, _ in reply))

    def _got_token(self, fields: Mapping[bytes, bytes]) -> None:
        event, user, instance, token = (
            decode(fields.get(name, b""))
            for name in (b"eventId", b"userId", b"instanceId", b"entryToken")
        )
        now = self._now()
        read = self._signer.read(token, event, round(now))
        valid = read is not None and read[0] == user
        visitor = self.book.got_token(event, user, instance, now, valid=valid)
        if visitor is not None:
            if valid:
                self._observer.count(ENTERED, "sim")
            self._start(self._stay(visitor))

    async def _stay(self, visitor: Visitor) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / max(self._load.session, 1e-9)))
        keys = self._keys[visitor.event]
        async with self._leaves:
            note = ("RPUSH", keys.given, f"{self._now():.3f}")
            # Not repeated: if only the answer was lost, the slot has been released already.
            try:
                await self._runner.server.in_a_row(keys.slots, note, ("DECR", keys.slots))
            except Vendor as exc:
                log.warning("event %s: a slot may not have been released: %s", visitor.event, exc)
        self.book.left()
        self._all_left.set()

    async def _read(self, *command: str | bytes | int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        try:
            reply = await self._runner.call(*command)
        except PenstockError as exc:
            log.warning("DISPATCH or ENTRY cannot be read, the broker tries again: %s", exc)
            await asyncio.sleep(AWAY_SECONDS)
            return []
        return [] if not reply else [(name, _fields(flat)) for name, flat in reply[0][1]]


def _fields(flat: Reply) -> dict[bytes, bytes]:
    return dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def _entry_id(text: str | bytes) -> tuple[int, int]:
    name = text.decode() if isinstance(text, bytes) else text
    millis, _, number = name.partition("-")
    return int(millis), int(number or 0)
