"""Translates Redis's errors to Penstock's, once, at the edge."""

from __future__ import annotations

from redis import exceptions as vendor

from penstock.model.errors import ConfigError, PenstockError, StoreCorrupt, StoreUnavailable

Vendor: tuple[type[Exception], ...] = (
    vendor.RedisError,
    vendor.RedisClusterException,
    OSError,
)
"""Every error that a call to Redis may raise."""

_REFUSED = ("OOM", "MISCONF", "NOREPLICAS", "BUSY ", "LOADING", "CLUSTERDOWN", "MASTERDOWN")
"""Prefixes of the answers of a server that is up but accepts no writes now."""
_UNBLOCKED = "UNBLOCKED"
"""Prefix of the answer to a blocked read of a stream that was flushed or moved."""
GROUP_EXISTS = "BUSYGROUP"
"""Prefix of the answer to a repeated XGROUP CREATE: nothing failed."""
_REFUSALS = (vendor.AuthenticationError, vendor.NoPermissionError, vendor.OutOfMemoryError)
_SLOW = (vendor.TimeoutError, vendor.OutOfMemoryError)


class NotConfirmed(vendor.ConnectionError):
    """A write was made, but WAIT or WAITAOF did not confirm it in time."""


def is_transient(exc: Exception, *, slow: bool = False) -> bool:
    """Whether repeating the call in a moment may help.

    With `slow`, time-outs and refusals for the moment count too. A caller that has already waited
    for a time-out may prefer the error.
    """
    if isinstance(exc, vendor.AuthenticationError | vendor.AuthorizationError):
        return False
    text = str(exc)
    if slow and (isinstance(exc, _SLOW) or text.startswith(_REFUSED)):
        return True
    return text.startswith(_UNBLOCKED) or isinstance(
        exc,
        vendor.ConnectionError
        | vendor.ReadOnlyError
        | vendor.ClusterDownError
        | vendor.TryAgainError
        | vendor.AskError
        | vendor.SlotNotCoveredError
        | OSError,
    )


def is_silent(exc: Exception) -> bool:
    """Whether the server did not answer at all."""
    answered = isinstance(exc, vendor.BusyLoadingError | vendor.AuthenticationError)
    return not answered and isinstance(exc, vendor.ConnectionError | vendor.TimeoutError | OSError)


def translate(exc: Exception, name: str, retry_after: float = 1.0) -> PenstockError:
    """The error to raise for `exc`; `name` is the store's URL without secrets.

    StoreUnavailable if the server may answer later. Any other error would be its answer again.
    """
    if (mistake := _mistake(exc, name)) is not None:
        return ConfigError(f"store: {mistake}")
    if (
        isinstance(exc, vendor.ResponseError)
        and not is_transient(exc)
        and not isinstance(exc, _REFUSALS)
        and not str(exc).startswith(_REFUSED)
    ):
        return StoreCorrupt(f"{name}: {exc}")
    return StoreUnavailable(f"{name} {_failure(exc, name)}", retry_after=retry_after)


def _mistake(exc: Exception, name: str) -> str | None:
    """The mistake in the URL, if it names another kind of server."""
    text = str(exc)
    single = name.startswith(("redis://", "rediss://"))
    if single and isinstance(exc, vendor.ClusterCrossSlotError | vendor.MovedError):
        return f"{name} is a node of a Redis Cluster: redis+cluster://host:port"
    if "Cluster mode is not enabled" in text or "cluster support disabled" in text:
        return f"{name} is a single server and no cluster: redis://host:port/0"
    if "DB index is out of range" in text:
        return f"{name}: the server has no such database (its setting `databases`)"
    return None


def _failure(exc: Exception, name: str) -> str:
    """Why the server could not answer, with a remedy."""
    text = str(exc)
    if isinstance(exc, NotConfirmed):
        return f"write not confirmed: {text}; safe to retry"
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
