"""The sender's verdict fails for each promise that is broken, and for that one alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from systems.verdict import Reports
from systems.verdicts.sender import LIMIT, judge

START = 1_793_000_000_000


def decided(name: str, **more: object) -> dict[str, Any]:
    fields = {"verdict": "ALLOW", "type": "social", "receivers": [f"u-{name}"]}
    return {"id": name, "may_go": START, "expired": False, **fields, **more}


def taken(name: str, at: int = START + 50, receivers: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": name, "at": at, "attempt": 1, "receivers": list(receivers or (f"u-{name}",))}


EACH = [
    *(decided("now"), decided("later", verdict="DEFER", may_go=START + 1_000)),
    *(decided("no", verdict="DROP"), decided("old", expired=True)),
    decided("night", type="promotional"),
    *(decided(f"busy{n}", receivers=["busy", f"u-{n}"]) for n in range(LIMIT + 1)),
]
HELD = {"night": "nights", f"busy{LIMIT}": "daily"}
ACCEPTED = [
    *(taken("now"), taken("later", START + 1_010)),
    *(taken(f"busy{n}", receivers=("busy", f"u-{n}")) for n in range(LIMIT)),
]


def failing(
    accepted: list[dict[str, Any]], held: dict[str, str] = HELD, rate: float = 10
) -> list[str]:
    totals: dict[str, Any] = {"items": len(EACH), "verdicts": {"ALLOW": 1}, "each": EACH}
    provider: dict[str, Any] = {"accepted": accepted, "arrivals": [one["at"] for one in accepted]}
    reports: Reports = {"decisions": [{"totals": totals}], "provider": [provider]}
    return [row.what for row in judge(deepcopy(reports), held, rate).rows if row.holds is False]


def test_it_holds_when_everything_went_as_promised() -> None:
    assert failing(ACCEPTED) == []
    assert failing([*ACCEPTED, taken("now")]) == [], "a repeat is shown, and breaks no promise"


@pytest.mark.parametrize(
    ("accepted", "broken"),
    [
        (ACCEPTED[1:], ["lost"]),
        ([*ACCEPTED[:1], taken("later", START + 999), *ACCEPTED[2:]], ["early"]),
        ([*ACCEPTED, taken("no")], ["blocked"]),
        ([*ACCEPTED, taken("old")], ["expired"]),
        ([*ACCEPTED, taken("night")], ["held by quiet hours"]),
        ([*ACCEPTED, taken(f"busy{LIMIT}", receivers=("busy", "x"))], ["cap kept"]),
        ([*ACCEPTED, *(taken("now") for _ in range(200))], ["provider's rate kept"]),
        ([*ACCEPTED, taken("whose")], ["not from here"]),
    ],
)
def test_it_names_the_promise_that_was_broken(
    accepted: list[dict[str, Any]], broken: list[str]
) -> None:
    assert failing(accepted) == broken


def test_what_is_held_without_a_policy_is_not_lost_but_nothing_else_excuses_a_loss() -> None:
    assert failing(ACCEPTED, held={"night": "nights"}) == ["lost"]
