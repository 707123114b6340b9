"""The store that all processes share: the real SQLite one without threads, or the plain one."""

from __future__ import annotations

import itertools
import random
import sqlite3
from functools import partial

from penstock.ports.rooms import RoomStore
from penstock.stores.memory import MemoryStore
from penstock.stores.memory.messages import MessageBook
from penstock.stores.memory.policies import MemoryPolicies
from penstock.stores.memory.rooms import MemoryRooms
from penstock.stores.sqlite import SqliteStore
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.schema import prepare
from penstock.stores.sqlite.session import Session
from tests.simulation.clocks import ProcessClock, ServerClock
from tests.simulation.entries import EntryStream
from tests.simulation.journal import Journal
from tests.simulation.ledger import Ledger
from tests.simulation.link import Backend, Books, trace_group
from tests.simulation.link_store import LinkedStore
from tests.simulation.loop import VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.rulings import Rulings
from tests.simulation.visits import Visits

MANY = 1_000_000
_databases = itertools.count()


class Server:
    """Opens a session for every life of a process, and passes wake-ups on to all of them."""

    def __init__(self, plan: Plan, loop: VirtualLoop, clock: ServerClock, journal: Journal) -> None:
        self._loop = loop
        self._clock = clock
        self._plan = plan
        self._chance = random.Random(f"{plan.seed}:wakes")
        self._linked: list[LinkedStore] = []
        self._own_clock = ProcessClock(clock)
        stream = EntryStream(clock, journal) if plan.dispatched else None
        self._partitions = 8
        self._connections: list[sqlite3.Connection] = []
        if plan.store == "memory":
            self.memory: MemoryStore | None = MemoryStore(
                self._own_clock, retention=plan.retention, retention_count=MANY
            )
            self.memory.listen(self._wake)
            self.books = Books(
                Ledger(journal, self.memory.book, beside=False),
                Rulings(journal, None),
                Visits(journal, self.memory.rooms, stream, beside=False),
            )
        else:
            self.memory = None
            self._name = f"file:/penstock-simulation-{next(_databases)}?vfs=memdb"
            self._connect()  # the database lives as long as one connection does
            self.books = Books(
                Ledger(
                    journal,
                    MessageBook(retention=plan.retention, retention_count=MANY),
                    beside=True,
                ),
                Rulings(journal, MemoryPolicies()),
                Visits(journal, MemoryRooms(self._own_clock), stream, beside=True),
            )

    async def open(self) -> tuple[Backend, RoomStore]:
        """A new session. On SQLite it is a connection of its own, with leases of its own."""
        if self.memory is not None:
            return self.memory, self.memory.rooms
        connection = self._connect()
        address = Address(path=None)
        store = SqliteStore(
            address,
            Session(connection, prepare(connection, address, self._partitions)),
            self._own_clock,
            retention=self._plan.retention,
            retention_count=MANY,
        )
        trace_group(store)
        store.listen(self._wake)
        rooms = await store.open_rooms(0, "")
        return store, rooms.store

    def grow(self) -> None:
        """Processes that start from now on have more partitions."""
        self._partitions *= 2

    def attach(self, store: LinkedStore) -> None:
        self._linked.append(store)

    def detach(self, store: LinkedStore) -> None:
        if store in self._linked:
            self._linked.remove(store)

    def close(self) -> None:
        """Connections of processes that crashed are still open: they end here."""
        for connection in self._connections:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._name, uri=True, isolation_level=None)
        self._connections.append(connection)
        connection.execute("PRAGMA synchronous = off")
        connection.execute("PRAGMA temp_store = memory")
        return connection

    def _wake(self, route: str, due: int) -> None:
        """To everybody, a little later; some are lost, as notifications may be."""
        for store in self._linked:
            if self._chance.random() >= self._plan.lost_wakes:
                self._loop.later(0.0, partial(_tell, store, route, due))


def _tell(store: LinkedStore, route: str, due: int) -> None:
    for listener in store.listeners:
        listener(route, due)
