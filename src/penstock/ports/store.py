"""The seam to a store: everything that keeps messages implements this and nothing more.

Rules for every method: batch first; `now` is epoch milliseconds of the store's own clock and is
given, not read; expected outcomes are values; a store that is away raises StoreUnavailable, and
then nothing of the call took effect, or it is safe to repeat. `penstock.testing.store_suite` is
the executable form of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from penstock.model.clock import Clock
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.state import State

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

    async def claim(self, route: str, limit: int, lease: int, now: int) -> Claim:
        """Lease at most `limit` messages of the route that are due at `now`.

        Higher priority first, then earlier due. All get one new token, attempt + 1 and a lease
        until now + lease ms. Never a message with due > now; nothing from a paused route.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        """End leases. The state each message then has, or None: the token was stale, no change.

        A cancel asked meanwhile turns SCHEDULED into CANCELLED. Delivered messages lose payload
        and headers; the rest is kept for the retention time.
        """
        ...

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        """Move the end of these leases; tokens no longer current are ignored."""
        ...

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        """Return messages whose lease ended at or before `now`, to be claimed again at once."""
        ...

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        """Cancel, reschedule, release, redrive: a definite answer each, in order.

        Order of checks: unknown id → already so (cancel of a cancelled message is DONE) → not in
        a state that allows it (RELEASED; a cancel of a leased one also marks it) → version
        (CONFLICT) → done, version + 1.
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


class KeyedClaims(Protocol):
    """What a store offers besides when it can keep promises per key."""

    async def claim_keyed(
        self, route: str, limit: int, lease: int, now: int, per_key: KeyLimit
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


@runtime_checkable
class PlainPuts(Protocol):
    """A store with a shorter way for one message that has nothing but a payload of JSON.

    Whoever puts one after another waits for each: what a call costs on its way is what counts.
    """

    async def put_plain(
        self, route: str, message_id: str, payload: bytes, due: int, now: int
    ) -> Receipt | None:
        """Keep it under a UUID made for it, which is its key too. None: nothing was written, and
        `put` may still keep it."""
        ...
