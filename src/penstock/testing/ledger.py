"""The checker of fault tests: what was acknowledged against what arrived, by id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message as received. `at` is on the same clock as the due times."""

    id: str
    attempt: int
    at: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a fault test.

    Promises allow duplicates around a fault, with a higher attempt.
    """

    acknowledged: int
    arrived: int
    lost: tuple[str, ...]
    early: tuple[str, ...]
    unknown: tuple[str, ...]
    """Ids that arrived but were never acknowledged: allowed if the answer was lost."""
    duplicates: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Ids that arrived more than once, with their attempts in order of arrival."""
    same_attempt: tuple[str, ...] = ()
    """Ids that arrived twice with the same attempt: never allowed."""

    def __str__(self) -> str:
        return (
            f"acknowledged {self.acknowledged}, arrived {self.arrived}, lost {len(self.lost)}, "
            f"early {len(self.early)}, duplicated {len(self.duplicates)}, "
            f"same attempt twice {len(self.same_attempt)}, unacknowledged {len(self.unknown)}"
        )


def compare(acknowledged: Mapping[str, int], arrivals: Iterable[Arrival]) -> Verdict:
    """Compare `acknowledged`, id → due, with every arrival."""
    seen: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        seen[arrival.id].append(arrival)
    again = {
        name: tuple(arrival.attempt for arrival in found)
        for name, found in seen.items()
        if len(found) > 1
    }
    return Verdict(
        acknowledged=len(acknowledged),
        arrived=len(seen),
        lost=tuple(name for name in acknowledged if name not in seen),
        early=tuple(
            name
            for name, due in acknowledged.items()
            if any(arrival.at < due for arrival in seen.get(name, ()))
        ),
        unknown=tuple(name for name in seen if name not in acknowledged),
        duplicates=again,
        same_attempt=tuple(
            name for name, attempts in again.items() if len(set(attempts)) < len(attempts)
        ),
    )
