"""CLAIM, EXTEND, REAP: the life of a lease up to its end by time.

A claim takes hints from Redis, writes the lease, reads the messages, and leases each that still is
as the hint says, on the condition that it is unchanged: of a claim and a cancel, or of two claims,
exactly one wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.outcome import Claim, Reaped
from penstock.model.size import FIRST_READ, fitting, size_of, total_size
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.items import (
    LEASE_SHARDS,
    Lease,
    before,
    lease_item,
    lease_pk,
    lease_shard,
    order,
    read_order,
    to_lease,
)
from penstock.stores.dynamodb.near import Hint, Taken
from penstock.stores.dynamodb.session import Loaded, Session
from penstock.stores.dynamodb.settle import Settling
from penstock.stores.dynamodb.table import LIST, Range

MAX_CLAIM = 1_000
"""Most messages under one token: their ids must fit into the lease's item."""
AGAIN_MS = 300_000
"""Time after which an ended lease is read once more, for writes that came after its end."""
READ = 200
"""Messages read at once: their size is known only afterwards."""
ROUNDS = 50
"""Most rounds of a claim whose hints are wrong."""


class Hints(Protocol):
    """The source of a claim's ids."""

    async def take(self, number: int) -> Taken:
        """Take ids of messages that may be due; no other process has them."""
        ...

    async def put_back(self, hints: Sequence[Hint]) -> None:
        """Return ids of the last `take` that still wait: the table is unavailable, or has too
        many."""
        ...

    def fits(self, message: Message) -> bool:
        """Whether its position in line was right; if not, `leased` corrects it."""
        ...

    async def leased(self, ids: Collection[str]) -> None:
        """These of the ids last taken are leased now, and the others are not."""
        ...


class Lanes:
    """Hints of a route whose messages are ordered by priority and due."""

    def __init__(self, session: Session, route: str, now: int) -> None:
        self._session = session
        self._route = route
        self._now = now

    async def take(self, number: int) -> Taken:
        return await self._session.near.take(self._route, number, self._now)

    async def put_back(self, hints: Sequence[Hint]) -> None:
        await self._session.best_effort(self._session.near.add(hints))

    def fits(self, _: Message) -> bool:
        return True

    async def leased(self, ids: Collection[str]) -> None:
        """Does nothing: the process that changed the others has placed them."""


class Leases:
    """Claims leases; `Hydrator.hurry` is called when Redis has lost its data."""

    def __init__(
        self, session: Session, settling: Settling, refill: Callable[[], Awaitable[None]]
    ) -> None:
        self._session = session
        self._settling = settling
        self._refill = refill
        self._sizes: dict[str, int] = {}
        """Route → approximate bytes of its messages."""

    async def claim(self, route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        lanes = Lanes(self._session, route, now)
        return await self.claim_from(lanes, route, limit, lease, now, max_bytes)

    async def claim_from(
        self, hints: Hints, route: str, limit: int, lease: int, now: int, max_bytes: int
    ) -> Claim:
        """At most `limit` of the messages that the hints lead to."""
        session = self._session
        limit = min(limit, MAX_CLAIM)
        if limit <= 0:
            return Claim(0)
        token = session.token()
        claimed: list[Message] = []
        later: list[Message] = []
        next_due: int | None = None
        left, stopped, written = max_bytes, False, False
        for _ in range(ROUNDS):
            taken = await hints.take(self._worth_taking(route, limit - len(claimed), left))
            if taken.lost:
                await self._refill()
                if not taken.hints:
                    continue
            next_due = taken.next_due
            if not taken.hints:
                break
            written = True
            try:
                # Before any of them is leased: whatever happens then, their lease ends. An id that
                # led to no message is not under this lease, so its name is left out of the item.
                ids = [message.id for message in claimed] + taken.ids
                await session.table.put(lease_item(Lease(token, now + lease, ids)))
                found, unread = await self._read(route, taken.hints, left)
                due = self._due(hints, found, route, now, later)
                number = fitting((size_of(h.message) for h in due), left, 0 if claimed else 1)
                won = await self._lease(due[:number], token, now)
            except PenstockError:
                await hints.put_back(taken.hints)
                if not claimed:
                    raise
                break
            claimed += won
            left -= total_size(won)
            later += [loaded.message for loaded in due[number:]]
            if unread:
                await hints.put_back(unread)
            await hints.leased({message.id for message in won})
            stopped = left <= 0 or number < len(due) or bool(unread)
            if stopped or len(claimed) >= limit:
                break
        if later:
            await session.bring(later, now)
        claim = await self._claimed(claimed, token, next_due, later, route, written=written)
        return replace(claim, next_due=None, stopped_at_bytes=True) if stopped else claim

    def _worth_taking(self, route: str, limit: int, max_bytes: int) -> int:
        """The number of hints likely to fit: their messages are read entirely."""
        if route not in self._sizes:
            return min(limit, FIRST_READ)
        return min(limit, max(1, max_bytes // max(1, self._sizes[route])))

    async def _read(
        self, route: str, hints: Sequence[Hint], max_bytes: int
    ) -> tuple[list[Loaded], list[Hint]]:
        """The messages found, up to `max_bytes`; and the hints not read because of that."""
        found: list[Loaded] = []
        rest, total = list(hints), 0
        while rest and total <= max_bytes:
            part, rest = rest[:READ], rest[READ:]
            some = list((await self._session.read([hint.id for hint in part])).values())
            if some:
                size = total_size(loaded.message for loaded in some)
                total += size
                # Up at once and down slowly: too few at a time costs less than too many.
                before = self._sizes.get(route, 0)
                self._sizes[route] = max(size // len(some), (7 * before) // 8)
            found += some
        return found, rest

    async def _claimed(
        self,
        claimed: list[Message],
        token: int,
        next_due: int | None,
        later: Sequence[Message],
        route: str,
        *,
        written: bool,
    ) -> Claim:
        dues = [message.due for message in later if message.route == route]
        if next_due is not None:
            dues.append(next_due)
        if not claimed:
            if written:
                await self._session.table.delete(lease_pk(token))
            return Claim(0, (), min(dues, default=None))
        claimed.sort(key=lambda m: (-m.priority, m.due, m.id))
        self._settling.began(token, len(claimed))
        return Claim(token, tuple(claimed), min(dues, default=None))

    def _due(
        self, hints: Hints, found: Iterable[Loaded], route: str, now: int, later: list[Message]
    ) -> list[Loaded]:
        """The due messages, in order; messages that belong elsewhere are added to `later`."""
        due: list[Loaded] = []
        for loaded in found:
            message = loaded.message
            if message.state is not State.SCHEDULED or not hints.fits(message):
                continue
            if message.due > now or message.route != route:
                later.append(message)
            else:
                due.append(loaded)
        due.sort(
            key=lambda loaded: (-loaded.message.priority, loaded.message.due, loaded.message.id)
        )
        return due

    async def _lease(self, due: Sequence[Loaded], token: int, now: int) -> list[Message]:
        """Lease the messages; those that another process changed are left out."""
        steps = [(loaded, lifecycle.lease(loaded.record, token, now)) for loaded in due]
        made = await self._session.write(steps, now)
        # The process that changed a message in between has placed it.
        return [message for message in made if message is not None]

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        await asyncio.gather(*(self._extend(token, until) for token in set(tokens)))

    async def _extend(self, token: int, until: int) -> None:
        await self._session.table.update(
            lease_pk(token),
            "SET o = :until",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeValues={":until": {"S": order(until, str(token))}},
        )

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        """End expired leases, oldest end first, until `limit` messages are returned."""
        reaped: list[Reaped] = []
        for token in await self._ended(now):
            item = (await self._session.table.get([lease_pk(token)])).get(lease_pk(token))
            if item is None:
                continue
            lease = to_lease(item)
            if lease.until <= now:  # the index may lag: the lease itself decides
                reaped += await self._reap(lease, now, limit - len(reaped))
            if len(reaped) >= limit:
                break
        return reaped

    async def open_leases(self) -> list[Lease]:
        """All open leases in the index, which lags a moment behind."""
        tokens: list[int] = []
        for shard in range(LEASE_SHARDS):
            async for page in self._session.table.pages(Range(LIST, lease_shard(shard))):
                tokens += [int(read_order(item["o"]["S"])[1]) for item in page]
        items = await self._session.table.get([lease_pk(token) for token in tokens])
        return [to_lease(item) for item in items.values()]

    async def _ended(self, now: int) -> list[int]:
        """Tokens of leases that seem to have ended."""
        ranges = [
            Range(LIST, lease_shard(shard), before=before(now + 1)) for shard in range(LEASE_SHARDS)
        ]
        pages = await asyncio.gather(*(self._first_page(asked) for asked in ranges))
        return [int(token) for _, token in sorted(entry for page in pages for entry in page)]

    async def _first_page(self, asked: Range) -> list[tuple[int, str]]:
        async for page in self._session.table.pages(asked, 100):
            return [read_order(item["o"]["S"]) for item in page]
        return []

    async def _reap(self, lease: Lease, now: int, room: int) -> list[Reaped]:
        session = self._session
        ids = list(lease.ids)[:room]
        found = await session.read(ids)
        lost = [
            (loaded, lifecycle.lose(loaded.record, lease.token, now)) for loaded in found.values()
        ]
        steps = [(loaded, step) for loaded, step in lost if step.record is not loaded.record]
        made = await session.write(steps, now)
        back = [message for message in made if message is not None]
        # Read once more: messages settled or marked to be cancelled in between.
        changed = [h.message.id for (h, _), done in zip(steps, made, strict=True) if done is None]
        rest = changed + list(lease.ids)[room:]
        waiting = [
            loaded.message.id
            for loaded in found.values()
            if loaded.message.state is State.SCHEDULED and loaded.record.token != lease.token
        ]
        if rest:
            await session.table.put(lease_item(Lease(lease.token, lease.until, rest, lease.again)))
        elif waiting and not lease.again:
            # A claim whose write was never answered may still be on its way to the table.
            later = Lease(lease.token, now + AGAIN_MS, waiting, again=True)
            await session.table.put(lease_item(later))
        else:
            await session.table.delete(lease_pk(lease.token))
        await session.bring_back(back, now, exact=False)
        await session.retire([m.id for m in back if m.state in PURGEABLE], now)
        return [Reaped(m.id, m.route, m.state, m.attempt) for m in back]
