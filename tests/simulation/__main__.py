"""`python -m tests.simulation SEED` replays one; `--seeds N --minutes M` runs many."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass

from tests.simulation.hunt import MUTANTS, hunt
from tests.simulation.plan import draw
from tests.simulation.run import Outcome, simulate
from tests.simulation.shrink import report, shrink

PROCESSES = 2


@dataclass(slots=True)
class Totals:
    seeds: int = 0
    failed: int = 0
    millis: int = 0
    messages: int = 0
    arrivals: int = 0
    faults: int = 0
    admitted: int = 0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.failed += bool(outcome.failures)
        self.millis += outcome.millis
        self.messages += outcome.messages
        self.arrivals += outcome.arrivals
        self.faults += outcome.faults
        self.admitted += outcome.admitted

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, {self.failed} failed, {self.millis / 3_600_000:.1f} simulated"
            f" hours, {self.messages} messages, {self.arrivals} arrivals,"
            f" {self.admitted} admissions, {self.faults} faults"
        )


def run_seed(seed: int) -> Outcome:
    return simulate(draw(seed))


def soak(first: int, seeds: int, minutes: float, processes: int) -> int:
    """Every seed from the first on, in parallel, until either bound is reached."""
    end = time.monotonic() + minutes * 60
    totals, told = Totals(), time.monotonic()
    with multiprocessing.Pool(processes) as pool:
        for outcome in pool.imap_unordered(run_seed, range(first, first + seeds)):
            totals.add(outcome)
            if outcome.failures:
                print(report(outcome), flush=True)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                print(totals, flush=True)
            if time.monotonic() > end:
                pool.terminate()
                break
    print(totals)
    return int(totals.failed > 0)


def mutants(names: Collection[str]) -> int:
    missed = 0
    for name in names:
        seeds, _ = MUTANTS[name]
        begin = f" from {seeds.start}" if seeds.start else ""
        seed, found = hunt(name)
        missed += found is None
        told = "NOT FOUND" if found is None else f"seed {seed}: {found.failures[0].promise}"
        print(f"{name} (within {len(seeds)} seeds{begin}): {told}", flush=True)
    print(f"{len(names) - missed} of {len(names)} found")
    return int(missed > 0)


def replay(seed: int, *, whole: bool, mutant: str | None = None) -> int:
    """Exactly as it was; then, unless it is wanted whole, with as little as breaks the same."""
    outcome = run_seed(seed)
    if not outcome.failures:
        print(f"{outcome.plan}\nevery promise holds")
        return 0
    if not whole:
        print(f"{outcome.plan}\n  BROKEN {outcome.failures[0]}", flush=True)
        print("the same promise, with as little as possible:", flush=True)
        outcome = shrink(outcome)
    print(report(outcome, mutant))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="replay this one")
    parser.add_argument("--whole", action="store_true", help="do not shrink what fails")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--mutants", action="store_true", help="hunt every deliberate fault")
    parser.add_argument(
        "--mutant", choices=MUTANTS, help="replay the seed with this fault; without one, hunt it"
    )
    asked = parser.parse_args()
    if asked.mutants:
        return mutants(MUTANTS)
    if asked.seed is None and asked.mutant is not None:
        return mutants([asked.mutant])
    if asked.seed is None:
        return soak(asked.first, asked.seeds, asked.minutes, asked.processes)
    with nullcontext() if asked.mutant is None else MUTANTS[asked.mutant][1]():
        return replay(asked.seed, whole=asked.whole, mutant=asked.mutant)


if __name__ == "__main__":
    sys.exit(main())
