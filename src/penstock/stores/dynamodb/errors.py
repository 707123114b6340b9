"""Translates DynamoDB's errors to Penstock's, once, at the edge."""

from __future__ import annotations

import aiohttp
from botocore import exceptions as vendor  # type: ignore[import-untyped] # it has no types

from penstock.model.errors import ConfigError, PenstockError, StoreCorrupt, StoreUnavailable

Vendor: tuple[type[Exception], ...] = (
    vendor.BotoCoreError,
    vendor.ClientError,
    aiohttp.ClientError,
    OSError,
)
"""Every error that a call to DynamoDB may raise."""

CONDITION = "ConditionalCheckFailed"
DUPLICATE = "DuplicateItem"
CONDITION_EXCEPTION = "ConditionalCheckFailedException"
NO_TABLE = "ResourceNotFoundException"

THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "ThrottlingException",
        "ThrottlingError",
        "RequestLimitExceeded",
        "RequestLimitExceededException",
        "LimitExceededException",
    }
)
"""Throttling: the call had no effect, and may be repeated a little later."""
FAULTS = frozenset(
    {
        "InternalServerError",
        "InternalServerErrorException",
        "InternalFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "TransactionConflict",
        "TransactionConflictException",
    }
)
"""Failures of DynamoDB itself: the call may have taken effect."""
_REFUSED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "ExpiredTokenException",
        "MissingAuthenticationTokenException",
    }
)


def code_of(exc: Exception) -> str:
    """The server's error code; empty if no server answered."""
    if not isinstance(exc, vendor.ClientError):
        return ""
    code = str(exc.response.get("Error", {}).get("Code", ""))
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return "InternalServerError" if status >= 500 and code not in THROTTLED | FAULTS else code


def is_away(exc: Exception) -> bool:
    """Whether no server answered and a repetition may help: false if the settings are at fault."""
    return not isinstance(
        exc,
        vendor.ClientError
        | vendor.NoCredentialsError
        | vendor.PartialCredentialsError
        | vendor.NoRegionError
        | vendor.ParamValidationError
        | vendor.ProfileNotFound,
    )


def translate(exc: Exception, name: str, retry_after: float) -> PenstockError:
    """The error to raise from `exc`."""
    code = code_of(exc)
    if code == NO_TABLE:
        return StoreUnavailable(
            f"{name}: there is no such table; make it with `penstock store init`", retry_after=5.0
        )
    for codes, what, wait in (
        (_REFUSED, "refuses us", 5.0),
        (THROTTLED, "throttles requests", retry_after),
        (FAULTS, "fails", retry_after),
    ):
        if code in codes:
            return StoreUnavailable(f"{name} {what}: {exc}", retry_after=wait)
    if is_away(exc):
        text = str(exc) or type(exc).__name__
        return StoreUnavailable(f"{name} is away: {text}", retry_after=retry_after)
    if isinstance(exc, vendor.ClientError):
        return StoreCorrupt(f"{name}: {exc}")
    return ConfigError(f"store: {name}: {exc}")
