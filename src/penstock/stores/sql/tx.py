"""The seam between the shared steps and a database: one transaction, and who runs it.

A step is a plain function `step(tx, …)`. SQLite runs it inline on the loop, PostgreSQL in a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.model.message import NewMessage

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class RowStream(Protocol):
    """Rows of an answer; a reader that stops early must close it."""

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Tx(ABC):
    """A transaction under way. Statements go by their name in the `.sql` files."""

    def __init__(self) -> None:
        self.wakes: dict[str, int] = {}
        """Route → the nearest due among this transaction's messages."""
        self.rollbacks = 0
        """Transactions that were rolled back: data cached from them is wrong."""

    @abstractmethod
    def execute(self, name: str, values: Values = ()) -> None:
        """Run a statement that answers nothing. It may be sent together with the next ones."""

    @abstractmethod
    def many(self, name: str, rows: Sequence[Values]) -> None:
        """Run a statement once for each row of values."""

    @abstractmethod
    def query(self, name: str, values: Values = ()) -> list[Any]:
        """Every row of the answer."""

    @abstractmethod
    def one(self, name: str, values: Values = ()) -> Any:
        """The first row of the answer, or None."""

    @abstractmethod
    def each(self, name: str, rows: Sequence[Values]) -> list[Any]:
        """Run a statement once for each row of values; the first row of each answer, or None."""

    @abstractmethod
    def bulk(self, name: str, values: list[Any], width: int, *, counted: bool = True) -> int:
        """Run a statement with `{rows:types}` for a flat list of values.

        Returns the number of rows written. Not `counted`: rows that accompany others do not make a
        transaction long.
        """

    @abstractmethod
    def stream(self, name: str, values: Values, where: Sequence[str] = ()) -> RowStream:
        """The rows of the answer, read as they are needed; `where` names conditions to add."""

    @abstractmethod
    def put_new(self, messages: Sequence[NewMessage], now: int) -> set[str] | None:
        """`lifecycle.put` of new ids, as scheduled messages; the ids that were new, None: all."""

    @abstractmethod
    def make_turns(self) -> None:
        """Make the tables and triggers of turns, unless they are there."""

    def lock_turns(self, route: str) -> None:  # noqa: B027 - one writer at a time needs none
        """Lock the turns of the route against other processes until the end of the transaction."""

    @abstractmethod
    def array(self, values: Sequence[int] | Sequence[str]) -> Any:
        """A list as the macro `each` takes it."""

    @abstractmethod
    def foreign_version(self) -> object:
        """A value that changes when another connection has written; writes of our own do not change
        it.

        A database that cannot tell the difference returns a new value each time.
        """

    @abstractmethod
    def new_token(self) -> int:
        """Never given before, by any process."""


class Runner(Protocol):
    """Runs steps in transactions."""

    def submit(
        self,
        work: Callable[[Any], T],
        *,
        rows: int = 1,
        writes: bool = True,
        durable: bool = True,
    ) -> Awaitable[T]:
        """The result once it is durable. Not `durable`: once it is committed."""
        ...

    def look(self, work: Callable[[Any], T]) -> Awaitable[T]:
        """A short read that waits for no other transaction."""
        ...
