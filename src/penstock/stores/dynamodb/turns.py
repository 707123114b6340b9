"""TURNS: routes with a promise per key, on a store whose messages are in the table.

Lines, turns and busy keys are in Redis, in the partition of the key, and change there in one step;
the lease itself is in the table, as always, so that a stale worker cannot settle. After a crash
between the two, Redis is checked against the table: an id that has been busy for longer than its
lease is freed if its message is not leased. An id added by a process that did not know the promise
is found in the ordinary lanes and lined up.

When Redis has lost its data, no message of such a route is claimed until everything near has been
read from the table again, with leased messages counted as busy. Two things are not found: leases
younger than the table's index (a moment), and the order of messages deferred beyond the near
future: until they come near, they hold back no other message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from penstock.model.message import DEFAULT_PRIORITY, Message
from penstock.model.outcome import Claim
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.stores.dynamodb.lease import Lanes, Leases
from penstock.stores.dynamodb.lookup import names, note_routes
from penstock.stores.dynamodb.near import Hint, Taken
from penstock.stores.dynamodb.near_turns import Holder, Over, Turn
from penstock.stores.dynamodb.session import Session
from penstock.stores.redis.messages.line import line_entry

KEYED = "s:keyed"
WHOLE = "turns"
"""Redis entry that says that the lines are complete and all busy keys are known."""
STRAYS = 100
"""Most ids of ordinary lanes examined with one claim."""
LATE_MS = 5_000
"""A lease that should have ended and has not is checked again after this."""
REMEMBERED = 10_000
"""Most leases remembered with their messages, so that extending them extends their turns."""


async def know_keyed(session: Session) -> None:
    session.keyed = await names(session, KEYED)


async def keep_turns(session: Session, routes: Iterable[str]) -> None:
    """Declare the routes, in every process from its start; running processes learn by stray ids."""
    if new := sorted(set(routes) - session.keyed):
        await note_routes(session, KEYED, new)
        session.keyed |= frozenset(new)


class KeyedLeases:
    """Claims by turns; rebuilds lines with the given read of everything near."""

    def __init__(
        self, session: Session, leases: Leases, fill: Callable[[], Awaitable[None]]
    ) -> None:
        self._session = session
        self._leases = leases
        self._fill = fill
        self._held: dict[int, tuple[str, list[Holder]]] = {}

    async def claim(
        self, route: str, limit: int, lease: int, now: int, per_key: KeyLimit, max_bytes: int
    ) -> Claim:
        hints = _Turns(self._session, route, now, lease, per_key, self._make_whole)
        claim = await self._leases.claim_from(hints, route, limit, lease, now, max_bytes)
        if claim.messages:
            self._held[claim.token] = route, [(m.key, m.id) for m in claim.messages]
            if len(self._held) > REMEMBERED:
                del self._held[next(iter(self._held))]
        return claim

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        for token in tokens:
            if token in self._held:
                route, holders = self._held[token]
                renewal = self._session.turns.hold(route, holders, until, if_busy=True)
                await self._session.best_effort(renewal)

    async def _make_whole(self) -> None:
        """Rebuild the lines: leased messages are busy, near ones wait in line."""
        session = self._session
        for lease in await self._leases.open_leases():
            by_route: dict[str, list[Holder]] = {}
            for loaded in (await session.look(lease.ids)).values():
                message = loaded.message
                if loaded.record.token == lease.token and message.route in session.keyed:
                    by_route.setdefault(message.route, []).append((message.key, message.id))
            for route, holders in by_route.items():
                await session.turns.hold(route, holders, lease.until)
        await self._fill()
        await session.near.keep(WHOLE, b"1")


class _Turns:
    """Hints of one claim: ids whose turn it is."""

    def __init__(
        self,
        session: Session,
        route: str,
        now: int,
        lease: int,
        per_key: KeyLimit,
        make_whole: Callable[[], Awaitable[None]],
    ) -> None:
        self._session = session
        self._route = route
        self._now = now
        self._until = now + lease
        self._per_key = per_key
        self._make_whole = make_whole
        self._lanes = Lanes(session, route, now)
        self._taken: list[Turn] = []

    async def take(self, number: int) -> Taken:
        session = self._session
        self._taken = []
        strays = await self._lanes.take(STRAYS)
        if strays.lost:
            await session.near.unkeep(WHOLE)
        if strays.lost or strays.paused:
            return strays._replace(hints=[], next_due=None)
        if await session.near.noted(WHOLE) is None:
            await self._make_whole()
        if strays.ids:
            await self._line_up(strays.ids)
        turns = await session.turns.take(self._route, number, self._until, self._now, self._per_key)
        if turns.over:
            await self._check(turns.over)
        self._taken = turns.taken
        nexts = [due for due in (turns.next_due, strays.next_due) if due is not None]
        hints = [Hint(turn.id, self._route, DEFAULT_PRIORITY, self._now) for turn in turns.taken]
        return Taken(hints, min(nexts, default=None))

    async def _line_up(self, ids: Sequence[str]) -> None:
        found = (loaded.message for loaded in (await self._session.look(ids)).values())
        waiting = [message for message in found if message.state is State.SCHEDULED]
        await self._session.bring(waiting, self._now)

    async def _check(self, holders: Sequence[Holder]) -> None:
        """Free holders busy beyond their time, if their messages are no longer leased."""
        found = await self._session.look([message_id for _, message_id in holders])
        messages = {one: loaded.message for one, loaded in found.items()}
        await self._free(holders, messages)

    def fits(self, message: Message) -> bool:
        """Whether the line of the id is still the message's: it may have changed its route or
        key."""
        entry = line_entry(message, message.id.encode())
        return any(turn.entry == entry for turn in self._taken)

    async def put_back(self, hints: Sequence[Hint]) -> None:
        """Put them back as they were: they are among the ids last taken."""
        ids = {hint.id for hint in hints}
        taken = [Over(turn.key, turn.id, turn.entry) for turn in self._taken if turn.id in ids]
        self._taken = [turn for turn in self._taken if turn.id not in ids]
        await self._session.best_effort(self._session.turns.free(self._route, taken))

    async def leased(self, ids: Collection[str]) -> None:
        """Free the rest, unless another process has leased them."""
        if rest := [(turn.key, turn.id) for turn in self._taken if turn.id not in ids]:
            found = await self._session.look([message_id for _, message_id in rest])
            messages = {one: loaded.message for one, loaded in found.items()}
            await self._session.best_effort(self._free(rest, messages))

    async def _free(self, holders: Sequence[Holder], found: Mapping[str, Message]) -> None:
        """Free holders that are not leased and requeue their messages; the others stay busy."""
        late: list[Holder] = []
        over: list[Over] = []
        for key, message_id in holders:
            message = found.get(message_id)
            if message is None or (message.route, message.key) != (self._route, key):
                over.append(Over(key, message_id))
            elif message.state is State.LEASED:
                late.append((key, message_id))
            else:
                over.append(Over.of(message))
        turns = self._session.turns
        await turns.hold(self._route, late, self._now + LATE_MS, if_busy=True)
        await turns.free(self._route, over)
