"""W3C trace context: carried in a message's headers, across the delay, to its receiver."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.model.draft import MAX_HEADERS, Draft

TRACEPARENT = "traceparent"
CORRELATION = ("x-correlation-id", "correlation-id", "x-request-id")
"""Headers that carry a correlation id; the first one present counts."""
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)


def trace_of(headers: Mapping[str, str] | None) -> tuple[str, str] | None:
    """(trace id, span id) from a message's headers; None if they have no valid one."""
    value = _header(headers, TRACEPARENT)
    match = None if value is None else _TRACEPARENT.fullmatch(value)
    return None if match is None else (match[1], match[2])


def correlation_of(headers: Mapping[str, str] | None) -> str | None:
    """The correlation id that log lines show: the caller's, or the trace id."""
    for name in CORRELATION:
        if (value := _header(headers, name)) is not None:
            return value
    trace = trace_of(headers)
    return None if trace is None else trace[0]


def give_trace(draft: Draft, traceparent: str | None) -> None:
    """Continue the trace of the request that brought the message, unless it has its own."""
    if traceparent is None or _TRACEPARENT.fullmatch(traceparent) is None:
        return
    headers = draft.headers or {}
    if len(headers) < MAX_HEADERS and _header(headers, TRACEPARENT) is None:
        draft.headers = {**headers, TRACEPARENT: traceparent}


def _header(headers: Mapping[str, str] | None, wanted: str) -> str | None:
    if not headers:
        return None
    if wanted in headers:
        return headers[wanted]
    return next((value for name, value in headers.items() if name.lower() == wanted), None)
