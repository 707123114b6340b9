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
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Claim, Reaped
from penstock.model.size import FIRST_READ, fitting, size_of, total_size
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.items import (
    LEASE_SHARDS,
    Lease,
    before,
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
FEWEST, FIRST_CLAIM = 10, 100
"""Messages of a claim on a table that does not keep up, at least; and of a process's first claim.
"""
PART = 4
"""A claim is to take less than this part of its lease: the sends and settlements need the rest."""
ENDED = 100
"""Ended leases that one reap examines."""
REAP_CHUNK = 100
LONG_REAP_MS = 1_000
"""A reap ends after this long: while a worker reaps, it extends none of its own leases."""
REAP_HOLD_MS = 5_000
"""How long other processes leave alone the leases that one has begun to reap."""
BY_END = [lease_shard(shard) for shard in range(LEASE_SHARDS)]
"""The lists of open leases by their end."""
ROUNDS = 50
"""Most rounds of a claim whose hints are wrong."""


class _TooLate(StoreUnavailable):
    """The table is so slow that nothing was leased."""


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
        self._most = FIRST_CLAIM
        """Messages that a claim can lease in good time, by how long the ones before took."""

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
        requested, limit = limit, min(limit, self._most)
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
                await session.open_lease(Lease(token, now + lease, ids))
                found, unread = await self._read(route, taken.hints, left)
                self._ensure_in_time(now, lease, len(taken.hints))
                due = self._due(hints, found, route, now, later)
                number = fitting((size_of(h.message) for h in due), left, 0 if claimed else 1)
                won = await self._lease(due[:number], token, now)
            except PenstockError as exc:
                await hints.put_back(taken.hints)
                if claimed:
                    break
                if isinstance(exc, _TooLate):
                    await session.close_lease(token)
                raise
            claimed += won
            left -= total_size(won)
            later += [loaded.message for loaded in due[number:]]
            if unread:
                await hints.put_back(unread)
            await hints.leased({message.id for message in won})
            is_slow = self._is_slow(now, lease, len(taken.hints))
            stopped = left <= 0 or number < len(due) or bool(unread)
            if stopped or len(claimed) >= limit or is_slow:
                break
        self._allow_more(now, lease, len(claimed))
        stopped = stopped or 0 < limit <= len(claimed) < requested
        if later:
            await session.bring(later, now)
        claim = await self._claimed(claimed, token, next_due, later, route, written=written)
        return replace(claim, next_due=None, stopped_at_bytes=True) if stopped else claim

    def _is_slow(self, began: int, lease: int, number: int) -> bool:
        """Whether a claim of so many hints takes too long; the next ones may then have fewer."""
        is_slow = self._session.clock.now() - began > lease // PART
        if is_slow:
            self._most = max(FEWEST, min(self._most, number) // 2)
        return is_slow

    def _allow_more(self, began: int, lease: int, leased: int) -> None:
        """After a quick claim the next ones may be larger.

        Hints of messages that are gone do not count: they cost no write.
        """
        took = self._session.clock.now() - began
        if took < lease // (2 * PART) and leased >= self._most // 2:
            self._most = min(2 * self._most, MAX_CLAIM)

    def _ensure_in_time(self, began: int, lease: int, number: int) -> None:
        """Raise StoreUnavailable if so much of the lease is over that the rest may not suffice.

        Messages leased all the same would lose their leases unsent, and an attempt each.
        """
        if (took := self._session.clock.now() - began) > lease // 2:
            self._is_slow(began, lease, number)
            raise _TooLate(
                f"{self._session.table.server} has taken {took} ms of a lease of {lease} ms to read"
                f" {number} messages; none of them is leased"
            )

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
                await self._session.close_lease(token)
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
        session = self._session
        is_open = await session.table.update(
            lease_pk(token),
            "SET o = :until",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeValues={":until": {"S": order(until, str(token))}},
            urgent=True,
        )
        if is_open:
            await session.best_effort(session.ends.put({str(token): until}))

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        """End expired leases, oldest end first, until `limit` messages are returned or it has taken
        too long."""
        session = self._session
        began = session.clock.now()
        reaped: list[Reaped] = []
        for token in await self._ended(now):
            item = (await session.table.get([lease_pk(token)])).get(lease_pk(token))
            lease = None if item is None else to_lease(item)
            if lease is None:
                await session.best_effort(session.ends.drop([str(token)]))
            elif lease.until > now:  # the index may lag: the lease itself decides
                await session.best_effort(session.ends.put({str(token): lease.until}))
            while lease is not None and lease.until <= now:
                some = min(REAP_CHUNK, limit - len(reaped))
                back, lease = await self._reap(lease, now, some)
                reaped += back
                if len(reaped) >= limit or session.clock.now() - began > LONG_REAP_MS:
                    return reaped
        return reaped

    async def open_leases(self) -> list[Lease]:
        """All open leases in the index, which lags a moment behind."""
        tokens: list[int] = []
        for name in BY_END:
            async for page in self._session.table.pages(Range(LIST, name)):
                tokens += [int(read_order(item["o"]["S"])[1]) for item in page]
        items = await self._session.table.get([lease_pk(token) for token in tokens])
        return [to_lease(item) for item in items.values()]

    async def _ended(self, now: int) -> list[int]:
        """Tokens of leases that seem to have ended."""
        session, ends = self._session, self._session.ends
        if now <= 0:  # no lease has: what is asked is whether the table answers
            await session.table.get([lease_pk(0)])
            return []
        try:
            taken = await ends.take(now, ENDED, REAP_HOLD_MS)
        except StoreUnavailable:
            return await self._ended_by_table(now)
        if taken.known:
            # The table must answer too: a worker that it does not answer keeps no lease.
            await session.table.get([lease_pk(0)])
        else:
            await ends.sweep(session.table, BY_END, now, session.clock)
            taken = await ends.take(now, ENDED, REAP_HOLD_MS)
        return [int(token) for token in taken.ids]

    async def _ended_by_table(self, now: int) -> list[int]:
        ranges = [Range(LIST, name, before=before(now + 1)) for name in BY_END]
        pages = await asyncio.gather(*(self._first_page(asked) for asked in ranges))
        return [int(token) for _, token in sorted(entry for page in pages for entry in page)]

    async def _first_page(self, asked: Range) -> list[tuple[int, str]]:
        async for page in self._session.table.pages(asked, ENDED):
            return [read_order(item["o"]["S"]) for item in page]
        return []

    async def _reap(self, lease: Lease, now: int, room: int) -> tuple[list[Reaped], Lease | None]:
        """End the lease of some messages; return them, and what is left of the lease."""
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
        left: Lease | None = None
        if rest:
            left = Lease(lease.token, lease.until, rest, lease.again)
        elif waiting and not lease.again:
            # A claim whose write was never answered may still be on its way to the table.
            left = Lease(lease.token, now + AGAIN_MS, waiting, again=True)
        if left is None:
            await session.close_lease(lease.token)
        else:
            await session.open_lease(left)
        await session.bring_back(back, now, exact=False)
        await session.retire([m.id for m in back if m.state in PURGEABLE], now)
        return [Reaped(m.id, m.route, m.state, m.attempt) for m in back], left
