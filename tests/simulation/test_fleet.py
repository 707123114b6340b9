"""The whole fleet in virtual time, seed by seed: every promise, and that nothing gets stuck."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import run_seed
from tests.simulation.hunt import hunt
from tests.simulation.shrink import report

CHUNK = 25
CHUNKS = 13
FOUND = {
    6: "a clock that was set back kept leases from being extended, and messages were sent twice",
    16: "a clock ahead of the store's made a paced lane ask without ever waiting",
}
"""Seeds that once failed, and what was wrong."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_whatever_goes_wrong(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        outcome = run_seed(seed)
        assert not outcome.failures, report(outcome)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.failures, FOUND[seed] + "\n" + report(outcome)


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
