"""Cumulative buckets in Prometheus's form."""

from __future__ import annotations

from collections.abc import Sequence


def cumulative(bounds: Sequence[float | str], numbers: Sequence[int]) -> list[tuple[str, float]]:
    """(Upper bound, count up to it) pairs; `numbers` has one more entry for the rest."""
    seen = 0
    buckets: list[tuple[str, float]] = []
    for bound, number in zip((*bounds, "+Inf"), numbers, strict=True):
        seen += number
        buckets.append((str(bound), seen))
    return buckets
