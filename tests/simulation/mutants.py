"""Deliberate faults in the product, to show that the simulation finds such ones.

Each is put in place for one run only, and must be found within its number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias

Mutant: TypeAlias = Callable[[], AbstractContextManager[Any]]
MUTANTS: dict[str, tuple[range, Mutant]] = {}
"""Name → (seeds within which it must be found, how to put it in place)."""


def mutant(name: str, seeds: int, first: int = 0) -> Callable[[Mutant], Mutant]:
    """Name a fault and say how soon it is found; of a rare one, from which seed on."""

    def add(make: Mutant) -> Mutant:
        MUTANTS[name] = range(first, first + seeds), make
        return make

    return add


@contextmanager
def together(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield
