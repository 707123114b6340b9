"""Redis's errors → ours, once, at the edge."""

from __future__ import annotations

from redis import exceptions as vendor

from penstock.model.errors import PenstockError, StoreCorrupt, StoreUnavailable

Vendor: tuple[type[Exception], ...] = (
    vendor.RedisError,
    vendor.RedisClusterException,
    OSError,
)
"""Everything a call to Redis may raise."""

_REFUSED = ("OOM", "MISCONF", "NOREPLICAS", "BUSY", "LOADING", "CLUSTERDOWN", "MASTERDOWN")
"""Answers of a server that is there but takes no writes now."""


def is_transient(exc: Exception) -> bool:
    """Whether trying again in a moment may help: all but a time-out, which took long enough."""
    if isinstance(exc, vendor.AuthenticationError | vendor.AuthorizationError):
        return False
    return isinstance(
        exc,
        vendor.ConnectionError
        | vendor.ReadOnlyError
        | vendor.ClusterDownError
        | vendor.TryAgainError
        | vendor.AskError
        | vendor.SlotNotCoveredError
        | OSError,
    )


def translate(exc: Exception, name: str, retry_after: float) -> PenstockError:
    """The error to raise from `exc`."""
    if isinstance(exc, vendor.AuthenticationError | vendor.NoPermissionError):
        return StoreUnavailable(f"{name} refuses us: {exc}", retry_after=retry_after)
    if isinstance(exc, vendor.ResponseError) and not is_transient(exc):
        if str(exc).startswith(_REFUSED) or isinstance(exc, vendor.OutOfMemoryError):
            return StoreUnavailable(f"{name} takes no writes: {exc}", retry_after=retry_after)
        return StoreCorrupt(f"{name}: {exc}")
    what = "does not answer" if isinstance(exc, vendor.TimeoutError) else "is away"
    return StoreUnavailable(f"{name} {what}: {exc}", retry_after=retry_after)
