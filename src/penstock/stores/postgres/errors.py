"""psycopg's errors → ours, once, at this edge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from penstock.model.errors import ConfigError, PenstockError, StoreCorrupt, StoreUnavailable

TRY_AGAIN = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,  # another process made the same at the same time: now it is there
)
"""The transaction was rolled back and would go well now."""

_SETUP = {
    "28P01": "the password is wrong",
    "28000": "this user may not connect: check pg_hba.conf and sslmode",
    "3D000": "there is no such database",
    "42501": "this user may not do that: check its privileges on the schema",
}
_MISSING = {"42P01", "3F000", "42703", "42883"}
"""Tables, schema, columns or functions that are not there."""
_AWAY = ("08", "53", "55", "57", "58", "25", "XX")
"""Classes of codes: connection, resources, locks, an operator, the disk, a read-only server."""


def is_lost(exc: BaseException) -> bool:
    """True if the connection is lost, or was to a server that no longer takes writes."""
    return isinstance(exc, errors.ReadOnlySqlTransaction) or (
        isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError))
        and (exc.sqlstate is None or exc.sqlstate[:2] in {"08", "57"})
        and not isinstance(exc, errors.QueryCanceled)
    )


def translate(exc: psycopg.Error, name: str) -> PenstockError:
    """The error with its cause and remedy; never the text of an address."""
    code = exc.sqlstate
    if code is None and isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError)):
        # no server answered, or the connection broke
        why = " ".join(str(exc).split()) or type(exc).__name__
        return StoreUnavailable(f"{name}: {why}", retry_after=1.0)
    if code is None:
        return StoreCorrupt(f"{name}: {exc}")
    reason = exc.diag.message_primary or type(exc).__name__
    if code in _SETUP:
        return StoreUnavailable(f"{name}: {_SETUP[code]} ({reason})", retry_after=5.0)
    if code in _MISSING:
        return ConfigError(
            f"{name}: Penstock's tables are not what this version needs ({reason}): run"
            " `penstock store migrate`"
        )
    if code[:2] in _AWAY or isinstance(exc, TRY_AGAIN):
        return StoreUnavailable(f"{name}: {reason}", retry_after=1.0)
    return StoreCorrupt(f"{name}: PostgreSQL refused what should work: {reason} ({code})")


@contextmanager
def store_errors(name: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as exc:
        raise translate(exc, name) from exc
