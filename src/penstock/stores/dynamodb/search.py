"""SEARCH: pages merged from ordered index ranges, checked against the items.

A list of one route and class costs one query per shard, one of a key a single query, one of leased
messages as many reads as there are messages in flight. The indexes lag a moment behind the table;
an entry counts only if the item says the same.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from penstock.model.message import Message
from penstock.model.query import Cursor, Filter, Page
from penstock.model.size import Filling, total_size
from penstock.model.state import State
from penstock.stores.dynamodb.items import (
    LEASE_SHARDS,
    OPEN,
    before,
    kind_of,
    lease_shard,
    list_key,
    order,
    read_order,
    to_lease,
)
from penstock.stores.dynamodb.lookup import known_routes
from penstock.stores.dynamodb.session import Session
from penstock.stores.dynamodb.table import KEY, LIST, Range

LOOKS = 50
"""Most batches of entries that one page reads; then it ends early, with a cursor."""
KINDS = (OPEN, *(state.value for state in State if kind_of(state) != OPEN))


class Entry(NamedTuple):
    due: int
    id: str


async def search(session: Session, where: Filter, after: Cursor | None, limit: int) -> Page:
    """One page in order of (due, id)."""
    page: Filling[Message] = Filling(limit)
    last: Entry | None = None
    looks = 0
    async for batch in _batches(session, where, after, limit + 1):
        async for entry, message in _read(session, batch, page):
            is_it = message.due == entry.due and where.matches(message)
            if is_it and not page.add(message):
                return Page(page.items, Cursor(page.items[-1].due, page.items[-1].id))
        last = batch[-1]
        looks += 1
        if looks >= LOOKS and last is not None:
            return Page(page.items, Cursor(last.due, last.id), cut=True)
    return Page(page.items)


async def _read(
    session: Session, entries: Sequence[Entry], page: Filling[Message]
) -> AsyncIterator[tuple[Entry, Message]]:
    """The entries whose messages exist, read in as many calls as the page may need."""
    while entries:
        number = page.next_read(len(entries))
        some, entries = entries[:number], entries[number:]
        found = await session.read([entry.id for entry in some])
        page.have_read(len(found), total_size(loaded.message for loaded in found.values()))
        for entry in some:
            if entry.id in found:
                yield entry, found[entry.id].message


async def _fill(streams: list[_Stream]) -> None:
    await asyncio.gather(*(stream.fill() for stream in streams))


async def _batches(
    session: Session, where: Filter, after: Cursor | None, size: int
) -> AsyncIterator[list[Entry]]:
    """Entries in order that may match, each once."""
    size = min(size, 500)
    if where.state is State.LEASED and where.key is None:
        entries = _within(await leased_entries(session), where, after)
        for i in range(0, len(entries), size):
            yield entries[i : i + size]
        return
    ranges = await _ranges(session, where, after)
    streams = [_Stream(session, one, size) for one in ranges]
    same, _ = await asyncio.gather(_same_id(session, where), _fill(streams))
    extra = _within(same, where, after)
    heap = [(stream.head, n) for n, stream in enumerate(streams) if stream.head is not None]
    heapq.heapify(heap)
    batch: list[Entry] = []
    while heap or extra:
        if extra and (not heap or extra[0] < heap[0][0]):
            batch.append(extra.pop(0))
        else:
            entry, n = heap[0]
            batch.append(entry)
            head = await streams[n].next()
            if head is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (head, n))
        if len(batch) >= size:
            yield batch
            batch = []
    if batch:
        yield batch


async def _ranges(session: Session, where: Filter, after: Cursor | None) -> list[Range]:
    low = None if after is None else order(after.due, after.id)
    if where.due_from is not None:
        low = max(low or "", before(where.due_from))
    high = None if where.due_to is None else before(where.due_to)
    if low is not None and high is not None and low >= high:
        return []
    if where.key is not None:
        return [Range(KEY, where.key, low, high)]
    kinds = KINDS if where.state is None else (kind_of(where.state),)
    routes = (where.route,) if where.route is not None else sorted(await known_routes(session))
    return [
        Range(LIST, list_key(kind, route, shard), low, high)
        for kind in kinds
        for route in routes
        for shard in range(session.shape.shards)
    ]


async def _same_id(session: Session, where: Filter) -> list[Entry]:
    """Messages whose key is their id: they are not in the index of keys."""
    if where.key is None:
        return []
    loaded = (await session.read([where.key])).get(where.key)
    if loaded is None or "k" in loaded.item:
        return []
    return [Entry(loaded.message.due, loaded.message.id)]


def _within(entries: Iterable[Entry], where: Filter, after: Cursor | None) -> list[Entry]:
    start = None if after is None else Entry(after.due, after.id)
    return [
        entry
        for entry in entries
        if (start is None or entry > start)
        and (where.due_from is None or entry.due >= where.due_from)
        and (where.due_to is None or entry.due < where.due_to)
    ]


async def leased_messages(session: Session) -> list[Message]:
    """The messages in flight, by their leases; without payloads."""
    pages = await asyncio.gather(*(_leases(session, shard) for shard in range(LEASE_SHARDS)))
    tokens = [pk for page in pages for pk in page]
    leases = [to_lease(item) for item in (await session.table.get(tokens)).values()]
    found = await session.look([one for lease in leases for one in lease.ids])
    return [loaded.message for loaded in found.values() if loaded.message.state is State.LEASED]


async def leased_entries(session: Session) -> list[Entry]:
    return sorted(Entry(m.due, m.id) for m in await leased_messages(session))


async def _leases(session: Session, shard: int) -> list[str]:
    found: list[str] = []
    async for page in session.table.pages(Range(LIST, lease_shard(shard))):
        found += [item["pk"]["S"] for item in page]
    return found


class _Stream:
    """One range, read page by page, with its next entry at hand."""

    def __init__(self, session: Session, asked: Range, size: int) -> None:
        self._pages = session.table.pages(asked, size)
        self._page: Sequence[Entry] = ()
        self._place = 0
        self.head: Entry | None = None

    async def fill(self) -> None:
        self.head = await self.next()

    async def next(self) -> Entry | None:
        while self._place >= len(self._page):
            try:
                page = await anext(self._pages)
            except StopAsyncIteration:
                return None
            self._page = [Entry(*read_order(item["o"]["S"])) for item in page]
            self._place = 0
        self._place += 1
        return self._page[self._place - 1]
