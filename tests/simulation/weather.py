"""The network between processes and the store: calm, slow, lossy, or gone, by the plan's hours."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from tests.simulation.clocks import ServerClock


class Fate(StrEnum):
    """What becomes of one call."""

    FINE = "fine"
    AWAY = "away"  # refused at once or after a time-out; nothing took effect
    LOST_REQUEST = "lost request"  # a time-out; nothing took effect
    LOST_REPLY = "lost reply"  # a time-out, but it took effect
    LATE_WRITE = "late write"  # a time-out, and it takes effect after that
    LATE_REPLY = "late reply"  # the answer comes, long after it took effect


_LOSSY = (Fate.LOST_REQUEST, Fate.LOST_REPLY, Fate.LATE_WRITE, Fate.LATE_REPLY)


@dataclass(slots=True)
class Spell:
    """Bad weather for one process, or for all."""

    until: int
    share: float
    """Of the calls that suffer."""
    fates: tuple[Fate, ...]


@dataclass(slots=True)
class Weather:
    """What one process's calls meet. `delay` bounds the way there and the way back."""

    clock: ServerClock
    chance: random.Random
    delay: int = 0
    spells: list[Spell] = field(default_factory=list)
    stays: Fate | None = None

    def away(self, span: int, share: float = 1.0) -> None:
        self.spells.append(Spell(self.clock.elapsed() + span, share, (Fate.AWAY,)))

    def lossy(self, span: int, share: float) -> None:
        self.spells.append(Spell(self.clock.elapsed() + span, share, _LOSSY))

    def cut(self, fate: Fate) -> None:
        """For ever: nothing gets there, or no answer comes back."""
        self.stays = fate

    def clear(self) -> None:
        """But for what stays."""
        self.spells.clear()

    def fate(self) -> Fate:
        if self.stays is not None:
            return self.stays
        if not self.spells:
            return Fate.FINE
        now = self.clock.elapsed()
        self.spells = [spell for spell in self.spells if spell.until > now]
        for spell in self.spells:
            if self.chance.random() < spell.share:
                return self.chance.choice(spell.fates)
        return Fate.FINE

    def way(self) -> float:
        """Seconds one way."""
        return 0.0 if not self.delay else int(self.chance.random() * (self.delay + 1)) / 1000

    def timeout(self) -> float:
        """Seconds until a caller gives up."""
        return self.chance.choice((0.0, 0.05, 0.3, 1.0))

    def late(self, lease: int) -> float:
        """Seconds that something comes too late: sometimes longer than a lease."""
        return self.chance.choice((0.05, 0.5, 1.5, lease * 1.5 / 1000))
