"""The table of error → status, and the shape of every error on the wire."""

from __future__ import annotations

import logging
import math

import msgspec

from penstock.api.http.answer import Answer
from penstock.api.statuses import STATUSES
from penstock.model.errors import (
    AlreadyReleased,
    Overloaded,
    PenstockError,
    StoreUnavailable,
    Unauthorized,
    VersionConflict,
    shortened,
)

log = logging.getLogger("penstock.http")

MAX_MESSAGE = 1_000
"""Characters of an error's sentence."""


class MethodNotAllowed(PenstockError):
    """The path exists, the method does not; `allow` lists the methods that do."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"this path answers to {allow}")
        self.allow = allow


class UnsupportedType(PenstockError):
    """The body's content type is not supported."""

    code = "unsupported_media_type"


class BodyTimeout(PenstockError):
    """The request stopped arriving."""

    code = "timeout"


class TooManyConnections(Overloaded):
    """The limit of open connections is reached."""


class HeadTooLarge(PenstockError):
    """The request line and headers are past their limit."""

    code = "head_too_large"


STATUS: dict[type[PenstockError], int] = {
    **{kind: status.http for kind, status in STATUSES.items()},
    MethodNotAllowed: 405,
    BodyTimeout: 408,
    UnsupportedType: 415,
    HeadTooLarge: 431,
    TooManyConnections: 503,
}


class ErrorInfo(msgspec.Struct, frozen=True):
    """The error: a stable code, a sentence for people, and the field concerned."""

    code: str
    message: str
    field: str | None


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every error; facts that a caller can act on stand beside it."""

    error: ErrorInfo
    state: str | None = None
    """409: the state the message has."""
    cancel_pending: bool | None = None
    """409: it is being sent right now and will not go out again after that."""
    version: int | None = None
    """412: the version the message has."""


_INTERNAL = ErrorBody(ErrorInfo("internal", "an unexpected fault; the server's log has it", None))
_encoder = msgspec.json.Encoder()


def status_of(exc: PenstockError) -> int:
    return next((STATUS[kind] for kind in type(exc).__mro__ if kind in STATUS), 500)


def error_info(exc: PenstockError) -> ErrorInfo:
    """The error's code, text and field, also used for one item of a batch."""
    field = None if exc.field is None else shortened(exc.field)
    return ErrorInfo(exc.code, shortened(exc.message, MAX_MESSAGE), field)


def error_answer(exc: BaseException, request: str = "a request") -> Answer:
    """The whole answer to a failed request; of an unexpected fault it reveals nothing.

    `request` names it in the log: `GET /v1/stats`.
    """
    if not isinstance(exc, PenstockError):
        log.error("%s failed with an unexpected error and was answered 500", request, exc_info=exc)
        return Answer(500, _encoder.encode(_INTERNAL))
    return Answer(status_of(exc), _encoder.encode(_body(exc)), _headers(exc))


def _body(exc: PenstockError) -> ErrorBody:
    info = error_info(exc)
    if isinstance(exc, AlreadyReleased):
        return ErrorBody(info, state=str(exc.state), cancel_pending=exc.cancel_pending)
    if isinstance(exc, VersionConflict):
        return ErrorBody(info, version=exc.version)
    return ErrorBody(info)


def _headers(exc: PenstockError) -> tuple[tuple[str, str], ...]:
    if isinstance(exc, Overloaded | StoreUnavailable):
        return (("retry-after", str(max(1, math.ceil(exc.retry_after)))),)
    if isinstance(exc, Unauthorized):
        return (("www-authenticate", 'Bearer realm="penstock"'),)
    if isinstance(exc, MethodNotAllowed):
        return (("allow", exc.allow),)
    if isinstance(exc, VersionConflict):
        return (("etag", f'"{exc.version}"'),)
    return ()
