"""The policies of a run, and what each of them promises in plain numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from penstock.model.message import Labels

POLICIES: dict[str, dict[str, object]] = {
    "cap": {"kind": "cap", "scope": ["key"], "limit": 2, "window": "10s"},
    "interval": {"kind": "cap", "scope": ["key"], "min_interval": "1s"},
    "pace": {"kind": "pace", "rate": "4/s", "burst": 2},
    "cross": {"kind": "pace", "rate": "4/s", "burst": 1, "applies_to": {"class": ["promo"]}},
    "quiet": {"kind": "quiet", "from": "17:00", "to": "17:47", "zone": "UTC", "spread": "5s"},
}
"""The run begins at 17:46:40 UTC."""
WINDOWS = {"cap": (2, 10_000), "interval": (1, 1_000)}
"""Cap → how many messages of a key go out in so many milliseconds at most."""


class Promised(NamedTuple):
    """Of a pace: in any time T at most `burst` + `rate`·T go out."""

    rate: Fraction
    """A millisecond."""
    burst: int
    class_: str | None = None
    """None: of every class."""

    def covers(self, labels: Labels | None) -> bool:
        return self.class_ is None or (labels is not None and labels.class_ == self.class_)

    def exceeded(self, number: int, span: int) -> bool:
        return number > self.burst + self.rate * span


PACES = {
    "pace": Promised(Fraction(4, 1000), 2),
    "cross": Promised(Fraction(4, 1000), 1, "promo"),
}
