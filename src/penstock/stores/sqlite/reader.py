"""Long reads of a file: in a thread, on a connection of their own, away from the path."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.model.errors import StoreUnavailable
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.errors import store_errors
from penstock.stores.sqlite.schema import connect
from penstock.stores.sqlite.session import Session

T = TypeVar("T")


class Reader:
    """One read at a time; each sees one moment's state."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-reader")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    async def read(self, work: Callable[[Session], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"{self._address.name}: the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, work)

    def close(self) -> None:
        """Interrupt the current read: at shutdown no caller waits for a search."""
        self._closed = True
        if self._connection is not None:
            self._connection.interrupt()
        self._thread.shutdown()
        if self._connection is not None:
            self._connection.close()

    def _read(self, work: Callable[[Session], T]) -> T:
        with store_errors(self._address.name):
            if self._connection is None:
                self._connection = connect(self._address)
            self._connection.execute("BEGIN")
            try:
                return work(Session(self._connection))
            finally:
                self._connection.execute("ROLLBACK")
