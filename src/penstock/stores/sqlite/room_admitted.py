"""Those a step let in. Most who ask only want to know how many: tickets are made late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, overload

from penstock.model.ticket import Ticket, TicketState

Row: TypeAlias = tuple[int, str, str, int, str, str]
"""Number, user, lane, joined, pass, instance."""


class Admitted(Sequence[Ticket]):
    """The tickets, in the order in which the lanes were drawn."""

    def __init__(
        self, order: Sequence[str], rows: Mapping[str, list[Row]], now: int, until: int | None
    ) -> None:
        self.order = order
        """Each one's lane."""
        self.rows = rows
        """Lane → those of it, as the database returned them."""
        self._now = now
        self._until = until

    def __len__(self) -> int:
        return len(self.order)

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
        lanes = {lane: iter(sorted(rows)) for lane, rows in self.rows.items()}
        return [self._ticket(next(lanes[lane])) for lane in self.order]

    def _ticket(self, row: Row) -> Ticket:
        number, user, lane, joined, pass_id, instance = row
        return Ticket(
            user=user,
            state=TicketState.ADMITTED,
            lane=lane,
            number=number,
            joined=joined,
            promoted=self._now,
            until=self._until,
            pass_id=pass_id,
            instance=instance,
        )
