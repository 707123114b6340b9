"""The whole fleet in virtual time, seed by seed: every promise, and that nothing gets stuck."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import run_seed
from tests.simulation.hunt import MUTANTS, hunt, run_mutant
from tests.simulation.plan import Plan
from tests.simulation.shrink import report, shrink

CHUNK = 25
CHUNKS = 13
FOUND = {
    "sleeps on when the clock is set back": 6,
    "waits for a moment that a clock set back has put far away": 3501,
    "asks on and on when its clock is ahead": 0,
    "acts on an answer that came after its lease": 303,
    "forgets by the worker's clock": 92,
    "what may have arrived gives its place back": 5_000_183,
}
"""What the simulation found in the product: as a deliberate fault, and a seed that finds it."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_whatever_goes_wrong(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        outcome = run_seed(seed)
        assert not outcome.failures, report(outcome)


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_stays_mended(name: str) -> None:
    outcome = run_seed(FOUND[name])
    assert not outcome.failures, report(outcome)
    assert run_mutant(name, FOUND[name]).failures


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


@pytest.mark.parametrize("name", ["settle before send", "now not clamped", "nobody recovers"])
def test_a_deliberate_fault_is_found(name: str) -> None:
    _, found = hunt(name)
    assert found is not None


def test_a_failure_is_made_smaller_and_told_with_the_command_that_replays_it() -> None:
    name = "acts on an answer that came after its lease"
    seed = FOUND[name]
    with MUTANTS[name][1]():
        whole = run_seed(seed)
        smaller = shrink(whole, most=12)
    assert smaller.failures[0].promise == whole.failures[0].promise
    assert _size(smaller.plan) < _size(whole.plan)
    told = report(smaller)
    assert f"-m tests.simulation {seed}" in told
    assert smaller.failures[0].about in told


def _size(plan: Plan) -> int:
    """Of what somebody has to read."""
    return len(plan.processes) + len(plan.events) + len(plan.asked)
