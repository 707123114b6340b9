"""The whole fleet in virtual time, seed by seed: every promise, and that nothing gets stuck."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.__main__ import run_seed
from tests.simulation.hunt import MUTANTS, find, hunt
from tests.simulation.plan import Kind, Plan, draw
from tests.simulation.run import Outcome, simulate
from tests.simulation.shrink import report, shrink

CHUNK = 25
CHUNKS = 14
FOUND = {
    "sleeps on when the clock is set back": 6,
    "waits for a moment that a clock set back has put far away": 6,
    "asks on and on when its clock is ahead": 0,
    "acts on an answer that came after its lease": 252,
    "forgets by the worker's clock": 92,
    "what may have arrived gives its place back": 5_000_183,
}
"""What the simulation found in the product: as a deliberate fault, and a seed that finds it, as far
as is known: where its course has changed, others are tried."""
STAYING = (
    "one capacity for all routes",
    "claims of a worker wait for each other",
    "one process recovers for all",
    "settlements wait for each other",
    "a put that fails is tried again as a whole",
)
"""Faults that stop others for as long as something is broken, and only so long."""
SEEN = dict(zip(STAYING, (377, 28, 78, 168, 7), strict=True)) | {
    "a probe that never ends": 67,
    "an interrupted send called delivered": 97,
    "only the last poison record buried": 19,
    "reservations of retries are given back": 87,
    "policies are never read again": 1,
    "heartbeats do not reach the store": 9,
    "claims and extends without ever an answer": 477,
}
BROKE = (
    7_003_571,
    7_003_631,
    7_003_741,
    7_003_755,
    9_000_855,
    9_000_943,
    9_002_354,
    9_005_266,
    9_006_425,
    9_006_445,
    100_000_048,
    110_000_228,
    110_004_128,
    110_007_598,
    110_008_758,
    110_003_181,
    50_010_936,
    110_003_517,
    110_006_832,
    110_007_560,
    110_009_907,
    500_000_152,
    600_004_448,
    40_001_195,
    41_010_626,
    70_015_486,
    70_021_890,
    70_032_878,
    70_032_955,
    70_041_198,
    70_047_880,
    70_055_437,
    70_068_642,
    70_071_510,
    70_076_340,
    1_200_000_336,
    1_210_050_052,
    1_220_009_465,
    1_300_058_767,
    1_300_066_027,
    1_300_068_012,
    2_000_021_563,
    2_000_040_718,
    2_000_076_288,
    2_000_092_119,
    5_000_064_106,
)
"""Seeds that broke a promise once, by a fault of the product or of what was kept of the run."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_whatever_goes_wrong(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        outcome = run_seed(seed)
        assert not outcome.failures, report(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    outcome = run_seed(FOUND[name])
    assert not outcome.failures, report(outcome)
    assert find(name, FOUND[name]) is not None


@pytest.mark.parametrize("seed", BROKE)
def test_a_seed_that_broke_a_promise_once_holds(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.failures, report(outcome)


def test_a_seed_gives_the_same_run_twice() -> None:
    for seed in (3, 27):
        assert run_seed(seed).digest == run_seed(seed).digest


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_another_process() -> None:
    """Whatever order another interpreter's sets and dicts of strings would have."""
    code = "from tests.simulation.__main__ import run_seed; print(run_seed(9).digest)"
    digests = {run_seed(9).digest}
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["settle before send", "now not clamped", "nobody recovers"])
def test_a_deliberate_fault_is_found(name: str) -> None:
    _, found = hunt(name)
    assert found is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_a_deliberate_fault_is_found_by_its_seed(name: str) -> None:
    assert find(name, SEEN[name]) is not None


def test_in_a_hundred_seeds_of_a_run_something_is_never_mended() -> None:
    staying = [draw(seed).stays for seed in range(CHUNKS * CHUNK)]
    kinds = Counter(stays.kind for stays in staying if stays is not None)
    assert kinds.total() >= 100
    assert set(kinds) == {Kind.SINK, Kind.LINK, Kind.PART, Kind.POISON}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAYING)
def test_only_what_is_never_mended_shows_what_stands_in_the_way_of_others(name: str) -> None:
    def only_so(outcome: Outcome) -> bool:
        plan = outcome.plan
        if plan.stays is None:
            return False
        with MUTANTS[name][1]():
            return not simulate(replace(plan, stays=None)).failures

    assert find(name, SEEN[name], only_so) is not None


@pytest.mark.slow
def test_a_failure_is_made_smaller_and_told_with_the_command_that_replays_it() -> None:
    name = "acts on an answer that came after its lease"
    whole = find(name, FOUND[name])
    assert whole is not None
    with MUTANTS[name][1]():
        smaller = shrink(whole, most=12)
    assert smaller.failures[0].promise == whole.failures[0].promise
    assert _size(smaller.plan) < _size(whole.plan)
    told = report(smaller)
    assert f"-m tests.simulation {whole.plan.seed}" in told
    assert smaller.failures[0].about in told


def _size(plan: Plan) -> int:
    """Of what somebody has to read."""
    return len(plan.processes) + len(plan.events) + len(plan.asked)
