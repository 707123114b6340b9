"""ALLOW, DEFER, BLOCK, and the part of a decision that is stored with the message."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    ALLOW = "ALLOW"
    DEFER = "DEFER"
    BLOCK = "BLOCK"


class Decided(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last refusal of a message, stored with it; of a delivered one, the reasons it was
    allowed.

    An ALLOW without a reason stores only `missed`.
    """

    verdict: Verdict
    policy: str
    """The binding policy; empty for an ALLOW."""
    detail: str
    until: int | None = None
    since: int | None = None
    """The due before its first deferral: `max_defer` counts from here."""
    missed: int = 0
    """Attempts since it was put or redriven that certainly did not arrive, or that caps have
    counted because they may have; any other attempt may have arrived."""
