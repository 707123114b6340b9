"""What the formats share: making ids, moments in seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from math import ceil

from penstock.model.draft import MAX_ID
from penstock.model.errors import InvalidMessage
from penstock.model.times import check_range, parse_moment

_MILLIS_FROM = 100_000_000_000
"""Seconds reach this in the year 5138: a larger number of "seconds" is milliseconds."""


def derived_id(origin: str | None, index: int) -> str | None:
    """An id that a redelivery gets again; None where the broker has no lasting name for it."""
    if origin is None:
        return None
    text = f"{origin}:{index}"
    return text[-MAX_ID:]  # the end distinguishes records of one queue


def of_seconds(seconds: float, field: str) -> int:
    """Epoch seconds → milliseconds, rounded up."""
    try:
        millis = ceil(Fraction(str(seconds)) * 1000)
    except (ValueError, OverflowError) as exc:  # not a finite number
        raise InvalidMessage(field, "must be epoch seconds") from exc
    return check_range(millis, field)


def of_any(value: float | str, field: str) -> int:
    """Epoch seconds or milliseconds, or a text (without an offset: UTC) → milliseconds."""
    if not isinstance(value, str):
        return of_seconds(value / 1000 if value >= _MILLIS_FROM else value, field)
    text = value.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return of_any(float(text), field)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is None:
        text = moment.replace(tzinfo=UTC).isoformat()
    return parse_moment(text, field)
