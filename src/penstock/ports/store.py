"""The seam to a store: everything that keeps messages implements this and nothing more.

Rules for every method: batch first; `now` is epoch milliseconds of the store's own clock and is
given, not read, but claims, reaps and purges hold it against that clock when they take effect (it
may have been set back since); expected outcomes are values; a store that is away raises
StoreUnavailable, and then nothing of the call took effect, or it is safe to repeat.
`penstock.testing.store_suite` is the executable form of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from penstock.model.errors import StoreFailed
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.time.clock import Clock

WakeListener: TypeAlias = Callable[[str, int], None]
"""Called with (route, due) when something on the route may now be due sooner than was known."""


class MessageStore(Protocol):
    """Holds messages until they are due; every change is durable when the call returns."""

    @property
    def name(self) -> str:
        """The store's address without secrets, for errors and health."""
        ...

    @property
    def clock(self) -> Clock:
        """The authority on time for everything in this store."""
        ...

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        """Keep each message whose id is new; one receipt each, in order.

        A known id (also earlier in the same batch) is a duplicate: `on_conflict` decides, and
        only while the first is still scheduled. The receipt shows the message then held.
        One that comes `blocked` is settled as it is put: BLOCKED, with that reason as its error,
        and nobody ever claims it.
        """
        ...

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        """Lease at most `limit` messages of the route that are due at `now`.

        Higher priority first, then earlier due. All get one new token, attempt + 1 and a lease
        until now + lease ms. Never a message with due > now; nothing from a paused route. Together
        they have at most `max_bytes`, by the store's own measure, unless the first has more alone;
        a claim that ended there says so (`stopped_at_bytes`). A claim whose answer was lost is
        repeated by the next one for the route, which may then give what the lost one took alone,
        under the token of that one.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        """End leases. The state each message then has, or None: the token was stale, no change.

        A cancel asked meanwhile turns SCHEDULED into CANCELLED. Delivered messages lose payload
        and headers; the rest is kept for the retention time. A store that is away in part raises
        PartlyUnavailable with the states of those that were settled: only the others are to be
        settled again.
        """
        ...

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        """Move the end of these leases; tokens no longer current are ignored."""
        ...

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        """Return messages whose lease ended at or before `now`, to be claimed again at once.

        Any part of the store that is there answers. As of 0 it changes nothing: workers ask so
        whether answers reach them.
        """
        ...

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        """Cancel, reschedule, release, redrive, delete, erase: a definite answer each, in order.

        Order of checks: unknown id → already so (cancel of a cancelled message is DONE) → not in
        a state that allows it (RELEASED; a cancel or erasure of a leased one also marks it) →
        version (CONFLICT) → done, version + 1. `penstock.model.lifecycle.amend` is this rule. Of
        what is deleted or erased nothing is kept, and its id is new again.
        """
        ...

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        """Ids of messages to be erased when their leases have ended, in order, after this change.

        A list that survives the process; the store itself does nothing about it.
        """
        ...

    async def find(self, ids: Sequence[str]) -> list[Message | None]: ...

    async def timeline(self, message_id: str) -> list[Event]:
        """What happened to the message, oldest first; empty if it is not known."""
        ...

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        """A page in order of (due, id), starting after the cursor."""
        ...

    async def purge(self, now: int, limit: int) -> int:
        """Forget at most about `limit` messages settled longer ago than the retention time."""
        ...

    async def figures(self, now: int) -> StoreFigures: ...

    async def pause(self, route: str, paused: bool) -> None:
        """While paused nothing of the route is claimed, by any process."""
        ...

    async def paused(self) -> frozenset[str]: ...

    def listen(self, listener: WakeListener) -> None:
        """Call back on every put or change that may bring a route's next due nearer."""
        ...

    async def check(self) -> dict[str, str]:
        """Facts for health; raises StoreUnavailable when it cannot work."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class MayFail(Protocol):
    """A store that may have to be given up, though every call to it is still answered."""

    async def failure(self) -> StoreFailed:
        """Wait until it accepts nothing any more, and say why: the process should end then."""
        ...


@runtime_checkable
class SelfChecking(Protocol):
    """A store that can look itself over on demand; not every one has anything to look at."""

    async def integrity(self) -> None:
        """Read everything that is kept; StoreCorrupt says what is wrong with it."""
        ...


@runtime_checkable
class AdmittingStore(Protocol):
    """A store with a near future of its own, which may be told later of what it keeps."""

    async def put_unadmitted(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        """As `put`, but for the near future: `admit`, or else a sweep, brings them there."""
        ...

    async def admit(self, ids: Iterable[str], now: int) -> int:
        """Bring those that wait and are near; how many wait. May be repeated, ids may be gone."""
        ...


@runtime_checkable
class EntryStore(Protocol):
    """What a store offers besides when it can add an entry to a stream and settle in one step."""

    def is_at(self, place: tuple[str, int, int]) -> bool:
        """Whether streams of that host, port and database are beside the messages."""
        ...


class KeyedClaims(Protocol):
    """What a store offers besides when it can keep promises per key."""

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        """Like `claim`, with no more of one key in flight than `per_key` says.

        Ordered: one of a key at a time by due, and whatever was begun before the rest. A busy
        key holds back no other; keys are served by the due of their next message.
        """
        ...


@runtime_checkable
class KeepsTurns(Protocol):
    """A store in which it matters from the first put on that a route promises something per key."""

    async def keep_turns(self, routes: Iterable[str]) -> None:
        """What is put on these routes from now on, by any process, can be claimed by key."""
        ...
