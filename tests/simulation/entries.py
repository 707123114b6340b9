"""Promotions on their way out: a stream with one group of consumers, as Redis keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.ticket import Dispatch, Entry, Ticket
from tests.simulation.clocks import ServerClock
from tests.simulation.journal import Journal

DISPATCHED = "5 every promotion is passed on, once, with its own token"


@dataclass(slots=True)
class EntryStream:
    """The server's side: every step is atomic."""

    clock: ServerClock
    journal: Journal
    fresh: dict[str, Entry] = field(default_factory=dict)
    """Nobody has been given these yet."""
    pending: dict[str, tuple[str, int, Entry]] = field(default_factory=dict)
    """Id → who has it, since when."""
    tokens: dict[str, str] = field(default_factory=dict)
    """User → the last token passed on."""
    passed_on: dict[str, Dispatch] = field(default_factory=dict)

    def add(self, room: str, ticket: Ticket) -> None:
        """In the same step as the promotion."""
        self.fresh[ticket.pass_id] = Entry(
            id=ticket.pass_id,
            user=ticket.user,
            room=room,
            instance=ticket.instance,
            promoted=ticket.promoted or 0,
        )

    async def take(self, who: str, limit: int) -> list[Entry]:
        taken = list(self.fresh.values())[:limit]
        for entry in taken:
            del self.fresh[entry.id]
            self.pending[entry.id] = who, self.clock.elapsed(), entry
        return taken

    async def take_abandoned(self, who: str, idle: int, limit: int) -> list[Entry]:
        now = self.clock.elapsed()
        taken = [entry for _, since, entry in self.pending.values() if now - since >= idle][:limit]
        for entry in taken:
            self.pending[entry.id] = who, now, entry
        return taken

    async def dispatch(self, who: str, dispatches: Sequence[Dispatch]) -> int:
        done = 0
        for one in dispatches:
            if self.pending.pop(one.entry.id, None) is not None:
                done += 1
                self.passed_on[one.entry.id] = one
                self.tokens[one.entry.user] = one.token
                self.journal.note(who, "dispatch", one.entry.user, one.entry.id)
        return done
