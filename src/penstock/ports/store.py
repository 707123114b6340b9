"""The seam to a store: a `Store` is made of parts, and only the first, its messages, is required.

Rules for every method: batch first; `now` is epoch milliseconds of the store's own clock and is
given, not read, but claims, reaps and purges hold it against that clock when they take effect (it
may have been set back since); expected outcomes are values; a store that is away raises
StoreUnavailable, and then nothing of the call took effect, or it is safe to repeat.
`penstock.testing.store_suite` is the executable form of this file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.model.errors import StoreFailed
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.ports.fleet import DeadLetters, Forecasting, HeartbeatStore
from penstock.ports.policies import CountedSettle, PolicyStore
from penstock.ports.recurring import RecurringStore
from penstock.ports.rooms import RoomHost
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
        """Store each message whose id is new; one receipt each, in order.

        A known id (also earlier in the same batch) is a duplicate: `on_conflict` decides, and only
        while the first is still scheduled. The receipt shows the message then stored. A message
        that is put `blocked` is settled at once: BLOCKED, with that reason as its error, and is
        never claimed.
        """
        ...

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        """Lease at most `limit` messages of the route that are due at `now`.

        Higher priority first, then earlier due. All get one new token, attempt + 1 and a lease
        until now + lease ms. Never a message with due > now; nothing from a paused route. Together
        they have at most `max_bytes`, by the store's own measure, unless the first alone has more;
        a claim that ended there says so (`stopped_at_bytes`). A claim whose answer was lost is
        repeated by the next one for the route, which may then give only the messages of the lost
        one, under its token.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        """End leases. Returns each message's new state, or None: the token was stale, no change.

        A cancel requested during the lease turns SCHEDULED into CANCELLED. Delivered messages lose
        payload and headers; the rest stays for the retention time. A store that is unavailable in
        part raises PartlyUnavailable with the states of those that were settled: only the others
        are to be settled again.
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

        Order of checks: unknown id → already so (cancel of a cancelled message is DONE) → not in a
        state that allows it (RELEASED; a cancel or erasure of a leased one also marks it) → version
        (CONFLICT) → done, version + 1. `penstock.model.lifecycle.amend` is this rule. Nothing stays
        of a deleted or erased message, and its id is new again.
        """
        ...

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        """Ids of messages to be erased when their leases have ended, in order, after this change.

        A list that survives the process; the store itself does nothing about it.
        """
        ...

    async def find(self, ids: Sequence[str]) -> list[Message | None]: ...

    async def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        """The message and its timeline, oldest event first; None if the id is not known."""
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


class MayFail(Protocol):
    """A store that may have to be given up, though every call to it is still answered."""

    async def failure(self) -> StoreFailed:
        """Wait until the store fails for good and return why: the process should end then."""
        ...


class SelfChecking(Protocol):
    """A store that can look itself over on demand; not every one has anything to look at."""

    async def integrity(self) -> None:
        """Read everything stored; StoreCorrupt names the damage."""
        ...


class AdmittingStore(Protocol):
    """A store with a near future of its own, which may be notified later of messages it has."""

    async def put_unadmitted(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        """Like `put`, without the near future: `admit`, or else a sweep, adds the messages to
        it.
        """
        ...

    async def admit(self, ids: Iterable[str], now: int) -> int:
        """Admit those that wait and are near; return how many wait. May be repeated; ids
        may be gone.
        """
        ...


class EntryStore(Protocol):
    """Adds an entry to a stream and settles its message in one step."""

    def is_at(self, place: tuple[str, int, int]) -> bool:
        """True if streams of that host, port and database are on the server of the messages."""
        ...


class KeyedClaims(Protocol):
    """Keeps promises per key."""

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        """Like `claim`, with no more of one key in flight than `per_key` allows.

        Ordered: one of a key at a time by due, and a begun message before the rest. A busy key
        delays no other; keys are served by the due of their next message.
        """
        ...


class KeepsTurns(Protocol):
    """A store in which it matters from the first put on that a route promises something per key."""

    async def keep_turns(self, routes: Iterable[str]) -> None:
        """From now on, index messages put on these routes, by any process, to be claimed by key."""
        ...


class JoinsTransactions(Protocol):
    """A store in the caller's own database: a message is committed with the caller's own rows."""

    async def put_within(self, connection: object, message: NewMessage) -> Receipt:
        """Put the message in the open transaction of a caller's own connection.

        It becomes visible when that transaction commits; after a rollback it never existed.
        ConfigError for an unknown kind of connection.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Store:
    """An open store by its parts: None where it cannot. One object may be several of them."""

    messages: MessageStore
    policies: PolicyStore | None = None
    rooms: RoomHost | None = None
    recurring: RecurringStore | None = None
    fleet: HeartbeatStore | None = None
    """None: each process knows only its own figures."""
    forecasting: Forecasting | None = None
    """None: the forecast has only the number coming due, without times."""
    dead: DeadLetters | None = None
    """None: dead letters are grouped from a list of whole messages."""
    keyed: KeyedClaims | None = None
    """None: routes with `ordered` or `max_in_flight_per_key` are refused."""
    turns: KeepsTurns | None = None
    """None: `keyed` needs no notice before messages are put."""
    admitting: AdmittingStore | None = None
    """None: an intake topic would have nothing to carry."""
    counted: CountedSettle | None = None
    """Settles and counts in one step. None: sends are counted, then settled."""
    entries: EntryStore | None = None
    transactions: JoinsTransactions | None = None
    """None: no caller can put within a transaction of its own."""
    self_check: SelfChecking | None = None
    may_fail: MayFail | None = None
    max_message: int | None = None
    """Bytes of a whole message that it takes. None: any that the settings allow."""
    figures_serve: int = 0
    """Milliseconds for which one count of its figures serves every process; 0: each call counts."""
    health_name: str = "store"
    """The store's name in a list of components."""
    announces: Callable[[], bool] = bool
    """True while listeners are notified of every put of other processes: a worker then polls less
    often.
    """
    warnings: Sequence[str] = ()
    """Advice for the operator about a working store; logged at start."""

    @property
    def name(self) -> str:
        """The store's address without secrets, for errors and health."""
        return self.messages.name

    @property
    def clock(self) -> Clock:
        """The authority on time for everything in this store."""
        return self.messages.clock

    async def close(self) -> None:
        await self.messages.close()


class OpenStore(Protocol):
    async def __call__(
        self,
        url: str,
        *,
        total_partitions: int | None,
        retention: int,
        retention_count: int,
        bucket_size_sec: int = 60,
        clock: Clock | None = None,
    ) -> Store:
        """Open the store at `url`, or create it where that costs nothing; the caller closes it.

        `retention` (milliseconds) and `retention_count` bound how long and how many settled
        messages stay known, whichever comes first. `total_partitions` None: as many as it has. A
        store that has no partitions or buckets ignores theirs.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ScratchStores:
    """Stores to try things in beside a real one, on the same disk or server."""

    url: Callable[[str, str], str]
    """(address of the real store, mark) → the address of an empty one with the same settings."""
    erase: Callable[[str], Awaitable[None]]
    """Remove everything at such an address; StoreUnavailable names what remains."""


def _outlives_the_process(_url: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreDriver:
    """The operations on a store's address; the module of a store has one, as `DRIVER`."""

    open_store: OpenStore
    nothing_to_read: Callable[[str], str | None]
    """Why opening the store only to look at it would make an empty one; None: it may be read.

    ConfigError when something is wrong with the address."""
    check_address: Callable[[str], object] | None = None
    """Raise ConfigError when something is wrong with the address, without connecting. None:
    `nothing_to_read` does not connect.
    """
    in_memory: Callable[[str], bool] = _outlives_the_process
    """True if the store at this address ends with the process that opens it."""
    on_server: bool = False
    """True for a server, which may be down at start: a process waits for it. A missing file is
    an error.
    """
    init_store: Callable[[str], Awaitable[str]] | None = None
    """Create what the store needs before it is opened, and describe it; harmless to repeat.

    None: opening it creates everything.
    """
    scratch: ScratchStores | None = None
    """None: it has no scratch stores."""
