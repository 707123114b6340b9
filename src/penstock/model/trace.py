"""Trace context (W3C): carried in a message's headers, across the delay, to whoever receives it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.model.draft import MAX_HEADERS, Draft

TRACEPARENT = "traceparent"
CORRELATION = ("x-correlation-id", "correlation-id", "x-request-id")
"""Headers that name what a message belongs to, the first that is there counting."""
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)


def trace_of(headers: Mapping[str, str] | None) -> tuple[str, str] | None:
    """(trace id, span id) of a message's headers; None: it has none that can be read."""
    value = _header(headers, TRACEPARENT)
    match = None if value is None else _TRACEPARENT.fullmatch(value)
    return None if match is None else (match[1], match[2])


def correlation_of(headers: Mapping[str, str] | None) -> str | None:
    """What a log line shows of where a message belongs: its correlation id, or its trace's."""
    for name in CORRELATION:
        if (value := _header(headers, name)) is not None:
            return value
    trace = trace_of(headers)
    return None if trace is None else trace[0]


def give_trace(draft: Draft, traceparent: str | None) -> None:
    """Let a message go on with the trace of the request that brought it, unless it has its own."""
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
