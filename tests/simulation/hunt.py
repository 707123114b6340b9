"""Look for a deliberate fault, seed after seed, as one would for a real one."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import mutants_flow, mutants_rules
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import draw
from tests.simulation.run import Outcome, simulate

__all__ = ["MUTANTS", "hunt", "mutants_flow", "mutants_rules", "run_mutant"]


def run_mutant(name: str, seed: int) -> Outcome:
    """One run with the fault in place."""
    _, make = MUTANTS[name]
    with make():
        return simulate(draw(seed))


def find(name: str, known: int, fits: Callable[[Outcome], bool] = lambda _: True) -> Outcome | None:
    """The run that finds the fault: of the seed that is known to, or else of the first that does.

    A seed's course changes with the product; what must hold is that some seed within the range
    finds the fault. `fits`: what else such a run must be like.
    """
    seeds, _ = MUTANTS[name]
    for seed in (known, *seeds):
        outcome = run_mutant(name, seed)
        if outcome.failures and fits(outcome):
            return outcome
    return None


def hunt(name: str) -> tuple[int, Outcome | None]:
    """(The last seed tried, the run that found it)."""
    seeds, _ = MUTANTS[name]
    for seed in seeds:
        outcome = run_mutant(name, seed)
        if outcome.failures:
            return seed, outcome
    return seeds[-1], None
