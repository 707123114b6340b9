"""SEARCH: pages in order of (due, id), merged from the indexes, with bounded work per page.

Lanes and dead letters are ordered. Buckets, leases and the list of settled ids are not: they are
read fully and sorted, up to EXACT entries. Beyond that a search scans the records instead, a
bounded part per page: then each page is ordered but the pages among each other are not, and a page
may be short; following `next` still reaches every message.

If the store has an index by key, a filter on key reads that instead, up to EXACT entries. Otherwise
the records of a page's candidates are read to filter on key or error. A page ends after BUDGET of
them, however few matched, and `next` continues behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import Malformed
from penstock.model.message import Message
from penstock.model.query import Cursor, Filter, Page
from penstock.model.size import Filling
from penstock.model.state import State
from penstock.model.times import MAX_TIME
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.records import NUMBERS, Held, pack_id, unpack, unpack_id
from penstock.stores.redis.search import sources
from penstock.stores.redis.search.figures import Overview, overviews
from penstock.stores.redis.search.sources import Candidate, Position, Range
from penstock.stores.redis.session import FIND, Session

_SCAN = Script("stores/redis/search/scan.lua")
EXACT = 10_000
"""Unordered entries that are read and sorted for one page."""
BUDGET = 2_000
"""Most records that one page reads."""
ROUNDS = 8
"""Most rounds of one page when too few candidates matched."""
_FROM_X = (State.DELIVERED, State.BLOCKED, State.EXPIRED, State.CANCELLED)
STEPS = 20
"""Most scan steps of one page."""
LOOKED_AT = 500
"""Approximate records that one step reads; fewer if they are large."""
_MARK = "\0"
"""Prefix of a cursor id that is a scan position and not a message: no id begins with it."""


async def search(session: Session, where: Filter, after: Cursor | None, limit: int) -> Page:
    if after is not None and is_scan(after):
        return await scan(session, where, after, limit)
    if where.key is not None:
        page = await _Walk(session, [], where, limit).page_of_key(where.key, after)
        if page is not None:
            return page
    found = await overviews(session)
    page = None
    if _without_order(found, where) <= EXACT:
        page = await _Walk(session, found, where, limit).page(after)
    return page or await scan(session, where, begin_scan(after), limit)


def _without_order(found: list[Overview], where: Filter) -> int:
    entries = 0
    if where.state in (None, State.LEASED):
        entries += sum(sum(one.leased.values()) for one in found)
    if where.state is None or where.state in _FROM_X:
        entries += sum(one.retired for one in found)
    return entries


class _Walk:
    """One page, merged from all indexes."""

    def __init__(self, session: Session, found: list[Overview], where: Filter, limit: int) -> None:
        self._session = session
        self._found = found
        self._where = where
        self._limit = limit
        self._due_to = MAX_TIME + 1 if where.due_to is None else where.due_to
        # A filter that needs the records reads further ahead at once.
        needs_records = where.key is not None or where.error is not None
        self._each = max(limit + 1, sources.FILTERED if needs_records else 0)
        self._page: Filling[Message] = Filling(limit)
        self._seen: set[bytes] = set()

    async def page(self, after: Cursor | None) -> Page | None:
        """A page in order; None if there are more than EXACT unordered entries."""
        place = self._start(after)
        unordered = await self._unordered(Range(place, self._due_to))
        looked = 0
        for _ in range(ROUNDS):
            span = Range(place, self._due_to)
            stretch = await self._ordered(span)
            if stretch is None:
                return None
            entries, complete = stretch
            entries += [e for e in unordered if span.holds(e.due, e.member)]
            entries.sort()
            if complete is not None:
                entries = [e for e in entries if (e.due, e.member) <= complete]
            looked += len(entries)
            last = await self._look(entries)
            if last is not None:
                return Page(self._page.items, Cursor(last.due, last.id))
            if complete is None:
                return Page(self._page.items)
            place = complete
            if looked >= BUDGET:
                break
        return Page(self._page.items, Cursor(place.due, unpack_id(place.member)), cut=True)

    async def page_of_key(self, key: str, after: Cursor | None) -> Page | None:
        """A page from the index by key; None if it is not complete."""
        span = Range(self._start(after), self._due_to)
        entries = await sources.of_key(self._session, key, span, EXACT)
        if entries is None:
            return None
        last = await self._look(sorted(entries))
        return Page(self._page.items, None if last is None else Cursor(last.due, last.id))

    def _start(self, after: Cursor | None) -> Position:
        place = Position(0, b"") if after is None else Position(after.due, pack_id(after.id))
        earliest = self._where.due_from
        return place if earliest is None else max(place, Position(earliest, b""))

    async def _unordered(self, span: Range) -> list[Candidate]:
        state = self._where.state
        entries: list[Candidate] = []
        if state in (None, State.LEASED):
            entries += await sources.leased(self._session, self._found, span)
        if state is None or state in _FROM_X:
            entries += await sources.settled(self._session, self._found, state, span)
        return entries

    async def _ordered(self, span: Range) -> tuple[list[Candidate], Position | None] | None:
        where, session, found = self._where, self._session, self._found
        lanes = await sources.ordered(session, found, where.state, where.route, span, self._each)
        if where.state not in (None, State.SCHEDULED):
            return lanes.entries, lanes.complete
        buckets = await sources.far(session, found, where.route, span, self._each, EXACT)
        if buckets is None:
            return None
        ends = [end for end in (lanes.complete, buckets.complete) if end is not None]
        return lanes.entries + buckets.entries, min(ends, default=None)

    async def _look(self, entries: Sequence[Candidate]) -> Message | None:
        """Add the matching messages; the answer is the page's last one once the page is full."""
        most = max(self._limit + 1, 100)
        first = 0
        while first < len(entries):
            number = self._page.next_read(most)
            for message in await self._read(entries[first : first + number]):
                if not self._page.add(message):
                    return self._page.items[-1]
            first += number
        return None

    async def _read(self, entries: Sequence[Candidate]) -> list[Message]:
        """The messages of these entries that still have the entry's due, and match."""
        by_partition: dict[int, list[Candidate]] = {}
        for entry in entries:
            by_partition.setdefault(entry.partition, []).append(entry)
        groups = []
        for partition, some in by_partition.items():
            keys = self._session.layout.keys(partition)
            members = [entry.member for entry in some]
            used = (keys.records, keys.leases, keys.generation)
            groups.append(Group(partition, used, [len(some)], members))
        replies = await self._session.runner.run(FIND, groups, writes=False)
        found: dict[Candidate, Message] = {}
        for some, (records, leases, _) in zip(by_partition.values(), replies, strict=True):
            for entry, record, lease in zip(some, records, leases, strict=True):
                if record is not None:
                    self._page.have_read(1, len(record))
                    held = Held(entry.partition, record, lease)
                    found[entry] = unpack(entry.member, held)
        messages = []
        for entry in entries:
            message = found.get(entry)
            if message is None or message.due != entry.due or entry.member in self._seen:
                continue
            if self._where.matches(message):
                self._seen.add(entry.member)
                messages.append(message)
        return messages


def is_scan(cursor: Cursor) -> bool:
    return cursor.id.startswith(_MARK)


def begin_scan(after: Cursor | None) -> Cursor:
    """A cursor for everything after a position, from here on unordered."""
    due, message_id = (0, "") if after is None else (after.due, after.id)
    return _cursor(due, 0, "0", "", message_id)


def _cursor(due: int, partition: int, position: str, within: str, after: str) -> Cursor:
    """The cursor of a scan; `within` and `after` say where in its step a page ended."""
    return Cursor(due, f"{_MARK}{partition}:{position}:{within}:{after}")


async def scan(session: Session, where: Filter, cursor: Cursor, limit: int) -> Page:
    """A page, short if few records matched in its steps.

    A step yields its matches in order of id; if a page is full in the middle of one, the next page
    repeats the step and skips the ids up to that one.
    """
    try:
        partition_text, position, within, after = cursor.id.removeprefix(_MARK).split(":", 3)
        looked_at, _, last_text = within.partition(".")
        partition, number, last = int(partition_text), int(looked_at or 0), bytes.fromhex(last_text)
    except ValueError as exc:
        raise Malformed("cursor: not one that a list returned", field="cursor") from exc
    floor = (cursor.due, pack_id(after))
    page: Filling[Message] = Filling(limit)
    for _ in range(STEPS):
        if partition >= session.layout.total:
            return Page(_in_order(page.items))
        number = number or page.next_read(LOOKED_AT)
        step = await _step(session, where, partition, position, floor, number)
        following, found, looked, size = step
        page.have_read(looked, size)
        for member in sorted(found):
            if member <= last:
                continue
            if not page.add(found[member]):
                within = f"{number}.{last.hex()}"
                place = _cursor(cursor.due, partition, position, within, after)
                return Page(_in_order(page.items), place)
            last = member
        position, number, last = following, 0, b""
        if position == "0":
            partition += 1
    place = _cursor(cursor.due, partition, position, "", after)
    return Page(_in_order(page.items), place, cut=True)


def _in_order(items: list[Message]) -> list[Message]:
    return sorted(items, key=lambda message: (message.due, message.id))


async def _step(
    session: Session,
    where: Filter,
    partition: int,
    position: str,
    floor: tuple[int, bytes],
    number: int,
) -> tuple[str, dict[bytes, Message], int, int]:
    """The next position, the matches, and the number and bytes of records read."""
    keys = session.layout.keys(partition)
    due_from = max(floor[0], where.due_from or 0)
    due_to = MAX_TIME if where.due_to is None else where.due_to - 1
    state = "" if where.state is None else NUMBERS[where.state]
    common: list[Argument] = [position, number, state, where.route or "", due_from, due_to]
    group = Group(partition, (keys.records, keys.leases))
    following, looked, size, *flat = await session.runner.single(_SCAN, group, common, writes=False)
    found: dict[bytes, Message] = {}
    for member, record, lease in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        message = unpack(member, Held(partition, record, lease))
        if (message.due, member) > floor and where.matches(message):
            found[member] = message
    return following.decode(), found, looked, size
