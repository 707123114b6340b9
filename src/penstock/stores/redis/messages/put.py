"""PUT: keep what is new, and let `on_conflict` decide about what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from penstock.model.amending import refusal_kept
from penstock.model.errors import StoreUnavailable
from penstock.model.message import NewMessage, OnConflict
from penstock.model.outcome import Receipt
from penstock.model.size import in_calls
from penstock.model.state import State
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.away import target_of
from penstock.stores.redis.messages.events import add_events, pack_event
from penstock.stores.redis.messages.ids import pack_id
from penstock.stores.redis.messages.pointers import reserve, unpoint
from penstock.stores.redis.messages.put_group import PutGroups, as_held
from penstock.stores.redis.messages.put_one import put_one
from penstock.stores.redis.messages.records import Held, read, state_and_due
from penstock.stores.redis.messages.swap import Swap, swap
from penstock.stores.redis.session import Session

_PUT = Script("stores/redis/messages/put.lua")

MAX_PUT = 2_000
"""Messages of one call; more go in several, each safe to repeat."""
ROUNDS = 50
"""Times a put looks again: each one means that somebody else changed something meanwhile."""
PAUSE = 0.02
"""Seconds to wait for somebody who has reserved an id and is about to put it elsewhere."""


async def put(session: Session, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
    """One receipt each, in order."""
    if len(messages) == 1:
        receipt = await put_one(session, messages[0], now)
        if receipt is not None:
            return [receipt]
    receipts: list[Receipt] = []
    for first in range(0, len(messages), MAX_PUT):
        for part in in_calls(messages[first : first + MAX_PUT]):
            receipts += await _put(session, part, now)
    return receipts


async def _put(session: Session, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
    receipts: list[Receipt | None] = [None] * len(messages)
    waiting = list(range(len(messages)))
    while waiting:
        now_unique, waiting = _first_of_each(messages, waiting)
        await _Batch(session, messages, now, receipts).keep(now_unique)
    session.wakeups.tell_earliest(messages)
    return [receipt for receipt in receipts if receipt is not None]


def _first_of_each(
    messages: Sequence[NewMessage], places: list[int]
) -> tuple[list[int], list[int]]:
    """(the first of every id, the later ones): an id again in one batch comes after."""
    if len({messages[i].id for i in places}) == len(places):
        return places, []
    seen: set[str] = set()
    first: list[int] = []
    later: list[int] = []
    for i in places:
        message_id = messages[i].id
        (later if message_id in seen else first).append(i)
        seen.add(message_id)
    return first, later


class _Batch:
    """Messages of different ids on their way into the store."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[NewMessage],
        now: int,
        receipts: list[Receipt | None],
    ) -> None:
        """What comes of each message is written to its place in `receipts`."""
        self._session = session
        self._messages = messages
        self._now = now
        self._moments: dict[int, int] = {}
        """When the ids of messages that live with their keys were reserved."""
        self._groups = PutGroups(session, messages, now, self._moments)
        self._receipts = receipts

    async def keep(self, places: list[int]) -> None:
        layout = self._session.layout
        left = places
        for _ in range(ROUNDS):
            if layout.older:
                left = await self._meet_older(left)
            left = await self._keep_new(left)
            if not left:
                return
        raise StoreUnavailable("the store's partitions are being changed", retry_after=1.0)

    async def _meet_older(self, places: list[int]) -> list[int]:
        """Those that no older generation holds; the others are met where they are."""
        layout = self._session.layout
        moved = [i for i in places if layout.elsewhere(self._messages[i].id)]
        found = await self._session.find_here([self._messages[i].id for i in moved])
        known = {i: held for i, held in zip(moved, found, strict=True) if held is not None}
        await self._meet(known)
        return [i for i in places if i not in known]

    async def _keep_new(self, places: list[int]) -> list[int]:
        """Put those that are new; returns what is to be tried again."""
        layout = self._session.layout
        again: list[int] = []
        refused: list[int] = []
        by_partition: dict[int, list[int]] = {}
        if layout.keyed:
            places, again = await self._reserve(places, refused)
            for i in places:
                by_partition.setdefault(self._place(i), []).append(i)
        else:
            homes = layout.homes([self._messages[i].id for i in places])
            for i, home in zip(places, homes, strict=True):
                if home in by_partition:
                    by_partition[home].append(i)
                else:
                    by_partition[home] = [i]
        generation = layout.generation
        groups = [self._groups.of(p, wanted, generation) for p, wanted in by_partition.items()]
        replies = await self._session.runner.run(_PUT, groups) if groups else []
        known: dict[int, Held] = {}
        for (partition, wanted), reply in zip(by_partition.items(), replies, strict=True):
            if reply[0] == b"kept":
                self._kept(wanted)
            elif reply[0] in (b"layout", b"late"):
                refused += [partition] if reply[0] == b"layout" else []
                again += wanted
            else:
                again += self._sort_known(partition, wanted, reply[1], reply[2], known)
        again += await self._follow(known)
        if refused:
            await layout.renew(refused)
        return again

    async def _reserve(self, places: list[int], refused: list[int]) -> tuple[list[int], list[int]]:
        """(those that may be put, those to be tried again); ids that live away are reserved."""
        layout = self._session.layout
        away: dict[int, tuple[str, int]] = {}
        for i in places:
            message_id, place = self._messages[i].id, self._place(i)
            if place != layout.home(message_id):
                away[i] = (message_id, place)
        done = await reserve(self._session, away)
        self._moments.update(done.moments)
        again = await self._follow(done.known)
        for partition, wanted in done.refused.items():
            refused.append(partition)
            again += wanted
        return [i for i in places if i not in away or i in done.moments], again

    def _place(self, i: int) -> int:
        message = self._messages[i]
        return self._session.layout.place(message.route, message.key, message.id)

    async def _follow(self, known: dict[int, Held]) -> list[int]:
        """Meet what is known, pointers where they lead; what they lead to may be gone: try again.

        Then somebody is about to put the id elsewhere, or it was forgotten there.
        """
        pointers = [i for i, held in known.items() if target_of(held.record) is not None]
        if not pointers:
            await self._meet(known)
            return []
        ids = [self._messages[i].id for i in pointers]
        lost: list[int] = []
        for i, there in zip(pointers, await self._session.find_here(ids), strict=True):
            if there is None:
                lost.append(i)
            else:
                known[i] = there
        await self._meet({i: held for i, held in known.items() if i not in lost})
        dead = [(self._messages[i].id, target_of(known[i].record) or 0) for i in lost]
        if lost and not all(await unpoint(self._session, dead)):
            await asyncio.sleep(PAUSE)
        return lost

    def _kept(self, places: Iterable[int]) -> None:
        messages, receipts, scheduled = self._messages, self._receipts, State.SCHEDULED
        for i in places:
            message = messages[i]
            is_plain = message.blocked is None and message.dead is None
            state = scheduled if is_plain else message.state
            receipts[i] = Receipt(message.id, state, message.due)

    def _sort_known(
        self,
        partition: int,
        wanted: list[int],
        records: list[bytes | None],
        leases: list[bytes | None],
        known: dict[int, Held],
    ) -> list[int]:
        """Nothing of the group was written: what is new in it goes again, without the known."""
        again = []
        put_now = self._groups.records[partition]
        for i, own, record, lease in zip(wanted, put_now, records, leases, strict=True):
            if record is None:
                again.append(i)
            elif record == own:
                self._kept([i])  # by this very call, whose answer was lost
            else:
                known[i] = Held(partition, record, lease)
        return again

    async def _meet(self, known: dict[int, Held]) -> None:
        """The id is known: keep the first, or put the new one in its place while it waits."""
        for _ in range(ROUNDS):
            swaps: dict[int, Swap] = {}
            for i, held in known.items():
                message = self._messages[i]
                state, due = state_and_due(held.record, held.lease)
                wins = message.on_conflict is OnConflict.REPLACE or (
                    message.on_conflict is OnConflict.EARLIEST and message.due < due
                )
                if wins and state is State.SCHEDULED:
                    swaps[i] = self._replace(message, held)
                else:
                    self._receipts[i] = Receipt(message.id, state, due, duplicate=True)
            done = await swap(self._session, list(swaps.values()), self._now)
            lost = [i for i, was_done in zip(swaps, done, strict=True) if not was_done]
            for i in swaps.keys() - set(lost):
                message = self._messages[i]
                self._receipts[i] = Receipt(message.id, State.SCHEDULED, message.due, True)
            if not lost:
                return
            found = await self._session.find_here([self._messages[i].id for i in lost])
            known = {i: held for i, held in zip(lost, found, strict=True) if held is not None}
            if len(known) < len(lost):  # forgotten meanwhile, so it is new
                await self.keep([i for i in lost if i not in known])
        raise StoreUnavailable("the message is being changed all the time", retry_after=1.0)

    def _replace(self, message: NewMessage, held: Held) -> Swap:
        member = pack_id(message.id)
        before, events = read(member, held)
        after = as_held(
            message,
            version=before.version + 1,
            attempt=before.attempt,
            attempt_floor=before.attempt_floor,
            created=before.created,
            claimed=before.claimed,
            last_error=before.last_error,
            decided=refusal_kept(before, message),
            ref=before.ref,
        )
        noted = add_events(events, pack_event(self._now, "replaced"))
        return Swap(member, held, before, after, noted)
