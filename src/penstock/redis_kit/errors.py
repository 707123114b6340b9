"""Redis's errors → ours, once, at the edge."""

from __future__ import annotations

from redis import exceptions as vendor

from penstock.model.errors import ConfigError, PenstockError, StoreCorrupt, StoreUnavailable

Vendor: tuple[type[Exception], ...] = (
    vendor.RedisError,
    vendor.RedisClusterException,
    OSError,
)
"""Everything a call to Redis may raise."""

_REFUSED = ("OOM", "MISCONF", "NOREPLICAS", "BUSY", "LOADING", "CLUSTERDOWN", "MASTERDOWN")
"""Answers of a server that is there but takes no writes now."""
_REFUSALS = (vendor.AuthenticationError, vendor.NoPermissionError, vendor.OutOfMemoryError)


class NotWaitedFor(vendor.ConnectionError):
    """A write was made, but is not yet where the settings want it."""


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
    """The error to raise from `exc`; `name` is the store's URL without secrets."""
    if (mistake := _mistake(exc, name)) is not None:
        return ConfigError(f"store: {mistake}")
    if (
        isinstance(exc, vendor.ResponseError)
        and not is_transient(exc)
        and not isinstance(exc, _REFUSALS)
        and not str(exc).startswith(_REFUSED)
    ):
        return StoreCorrupt(f"{name}: {exc}")
    return StoreUnavailable(f"{name} {_what(exc, name)}", retry_after=retry_after)


def _mistake(exc: Exception, name: str) -> str | None:
    """What no waiting mends: the URL is another kind of server's."""
    text = str(exc)
    single = name.startswith(("redis://", "rediss://"))
    if single and isinstance(exc, vendor.ClusterCrossSlotError | vendor.MovedError):
        return f"{name} is a node of a Redis Cluster: redis+cluster://host:port"
    if "Cluster mode is not enabled" in text or "cluster support disabled" in text:
        return f"{name} is a single server and no cluster: redis://host:port/0"
    if "DB index is out of range" in text:
        return f"{name}: the server has no such database (its setting `databases`)"
    return None


def _what(exc: Exception, name: str) -> str:
    """What is the matter with a server that may be there again later, and what may help."""
    text = str(exc)
    if isinstance(exc, NotWaitedFor):
        return f"does not vouch for the write: {text}; it may be sent again"
    if isinstance(exc, vendor.AuthenticationError) and "required" in text:
        return f"wants a password: {name.partition('://')[0]}://:PASSWORD@host:port"
    if isinstance(exc, vendor.AuthenticationError | vendor.NoPermissionError):
        return f"refuses us: {text}"
    if isinstance(exc, vendor.ResponseError) and not is_transient(exc):
        return f"takes no writes: {text}"
    what = "does not answer" if isinstance(exc, vendor.TimeoutError) else "is away"
    return f"{what}: {text}{_tls_hint(text) if name.startswith('rediss') else ''}"


def _tls_hint(text: str) -> str:
    if "Timeout connecting" in text:
        return " (if that port has no TLS: redis://)"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return " (?ssl_ca_certs=FILE names an authority of your own)"
    return ""
