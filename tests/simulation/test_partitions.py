"""However partitions grow, an id lives once, is found, and is within everybody's reach."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from penstock.stores.redis.layout import Layout
from tests.simulation.partitions import PartitionServer, grow

SEEDS = 30


def _grows_back(self: PartitionServer, step: str, value: int | str, store_format: int) -> Any:
    """As it once was: whoever asked last was believed, though others had grown further."""
    if step == "grow" and self.pending is None:
        self.pending = int(value)
    return _LAYOUT(self, step, value, store_format)


_LAYOUT = PartitionServer.layout
MUTANTS: dict[str, tuple[int, Any]] = {
    "grows back": (20, patch.object(PartitionServer, "layout", _grows_back)),
    "older layouts are not looked at": (20, patch.object(Layout, "elsewhere", lambda *_: [])),
}
"""Name → (seeds within which it is found, how to put it in place)."""


@pytest.mark.slow
def test_an_id_lives_once_and_is_found_while_partitions_grow() -> None:
    for seed in range(SEEDS):
        assert grow(seed).server.broken == [], f"grow({seed})"


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_in_growing_is_found(name: str) -> None:
    seeds, fault = MUTANTS[name]
    with fault:
        assert any(_breaks(seed) for seed in range(seeds))


def _breaks(seed: int) -> bool:
    return bool(grow(seed).server.broken)
