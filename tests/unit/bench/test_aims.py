"""A figure that is not what was aimed at is marked as such."""

from __future__ import annotations

import pytest

from bench.report import MISSED, misses
from scripts import figures


@pytest.mark.parametrize(
    ("aim", "figure", "ratio", "missed"),
    [
        (">= 0.5 x", 9.0, 0.49, True),
        (">= 0.5 x", 0.1, 0.5, False),
        ("<= 1.3 x", 9.0, 1.57, True),
        (">= 0.31 x (50,000 where bare does 160,000)", 9.0, 0.3, True),
        (">= 20,000/s", 19_999.0, 2.0, True),
        (">= 20,000/s", 20_000.0, 0.1, False),
        ("≥ 50,000", 50_001.0, None, False),
        ("≤ 1.3 x", 1.0, 1.31, True),
        ("< 200", 200.0, None, True),
        ("<= 5", 5, None, False),
        ("0", 1, None, True),
        ("0", 0, None, False),
        ("flat", 9.0, None, False),
        ("", 9.0, None, False),
        (">= 0.5 x", 9.0, None, False),
    ],
)
def test_an_aim_is_met_or_missed(
    aim: str, figure: float, ratio: float | None, missed: bool
) -> None:
    assert misses(aim, figure, ratio) is missed


def test_every_aim_of_the_results_can_be_read_and_misses_are_shown() -> None:
    shown = figures.figures()
    assert shown.count(MISSED) == sum(
        misses(row["aim"], row["figure"], row["ratio"]) for row in figures.rows()
    )
    unread = {row["aim"] for row in figures.rows() if row["aim"] and row["aim"][0] not in "<>≥≤0"}
    assert unread <= {"flat"}
