"""Those a step let in. Most who ask only want to know how many: tickets are made late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, overload

from penstock.model.ticket import Ticket, TicketState

Row: TypeAlias = tuple[int, str, int, str, int]
"""Number, user, joined, instance, and the row's id."""


class Admitted(Sequence[Ticket]):
    """The tickets, in the order in which the lanes were drawn."""

    def __init__(
        self,
        order: Sequence[str],
        rows: Mapping[str, Sequence[Row]],
        named: str,
        now: int,
        until: int | None,
    ) -> None:
        self._order = order
        """Each one's lane."""
        self.rows = rows
        """Lane → those of it, in their order."""
        self.named = named
        """How their passes begin; the number follows."""
        self.until = until
        self._now = now

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Ticket: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Ticket]: ...

    def __getitem__(self, index: int | slice) -> Ticket | Sequence[Ticket]:
        return self._tickets[index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    @cached_property
    def _tickets(self) -> list[Ticket]:
        lanes = {lane: iter(rows) for lane, rows in self.rows.items()}
        return [self._ticket(lane, next(lanes[lane])) for lane in self._order]

    def _ticket(self, lane: str, row: Row) -> Ticket:
        number, user, joined, instance, _ = row
        return Ticket(
            user=user,
            state=TicketState.ADMITTED,
            lane=lane,
            number=number,
            joined=joined,
            promoted=self._now,
            until=self.until,
            pass_id=f"{self.named}{number}",
            instance=instance,
        )
