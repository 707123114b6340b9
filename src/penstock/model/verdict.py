"""ALLOW, DEFER, BLOCK, and what is kept of a decision."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    ALLOW = "ALLOW"
    DEFER = "DEFER"
    BLOCK = "BLOCK"


class Decided(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last refusal of a message, kept with it; of a delivered one, what let it go.

    An ALLOW without a word: there is only `missed` to keep.
    """

    verdict: Verdict
    policy: str
    """The binding one; none of an ALLOW."""
    detail: str
    until: int | None = None
    since: int | None = None
    """The due it had before it was first deferred: `max_defer` counts from here."""
    missed: int = 0
    """Attempts since it was put or redriven that surely did not arrive, or that caps have counted
    because they may have; any other one may have arrived."""
