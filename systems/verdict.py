"""What a run ends with: one row per promise, and whether all of them held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Reports: TypeAlias = Mapping[str, list[dict[str, Any]]]
"""Process name → the totals that each of its copies printed last."""


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    value: str
    holds: bool | None = None
    """None: a figure that promises nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    rows: Sequence[Row]

    @property
    def holds(self) -> bool:
        return all(row.holds is not False for row in self.rows)


def lines(title: str, verdict: Verdict) -> list[str]:
    """The verdict as text, one row per line."""
    width = max((len(row.what) for row in verdict.rows), default=0)
    end = "holds" if verdict.holds else "DOES NOT HOLD"
    return [
        f"Verdict of {title}",
        *(f"  {row.what:<{width}}  {row.value}{_mark(row)}" for row in verdict.rows),
        f"{title}: the verdict {end}",
    ]


def none_of(what: str, number: int) -> Row:
    """A row that holds when there is none."""
    return Row(what, f"{number:,}", holds=number == 0)


def late(lateness_ms: Mapping[str, int | None]) -> Row:
    """How late messages came, by quantile."""
    known = [f"{name} {ms:,} ms" for name, ms in lateness_ms.items() if ms is not None]
    return Row("late", ", ".join(known) or "unknown")


def _mark(row: Row) -> str:
    if row.holds is None:
        return ""
    return "  ok" if row.holds else "  FAILED"
