"""Moments and durations as users write them, as epoch milliseconds.

Everything is rounded *up* to the millisecond: rounding down would be early.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache

from penstock.model.errors import InvalidMessage

MAX_TIME = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: the last moment the calendar of Python, SQL and RFC 3339 share."""

_AGES = 1e11
"""Seconds: about three thousand years, within the calendar from any starting point."""
NAIVE = "needs a time zone: datetime.now(UTC), not datetime.now()"

_USUAL = len("2030-01-31T09:00:00.000Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.(\d+))?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_ENDINGS = tuple(f".{ms:03d}Z" for ms in range(1000))
_MILLIS = {ending: ms for ms, ending in enumerate(_ENDINGS)}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1000}


def parse_moment(text: str, field: str = "at") -> int:
    """RFC 3339 with an offset → epoch ms, rounded up."""
    if len(text) == _USUAL:
        ms = _MILLIS.get(text[19:])  # the common form; a few seconds repeat, hence the cache
        if ms is not None:
            return _parse_second(text[:19], field) + ms
    return _parse_moment(text, field)


@lru_cache(maxsize=2048)
def _parse_second(text: str, field: str) -> int:
    return _parse_moment(f"{text}Z", field)


def _parse_moment(text: str, field: str) -> int:
    match = _RFC3339.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise InvalidMessage(
            field, "must be RFC 3339 with an offset, such as 2030-01-31T09:00:00Z or …+02:00"
        )
    try:
        moment = datetime.fromisoformat(text.upper())
        micros = (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as exc:
        raise InvalidMessage(field, f"is not a moment of the calendar ({exc})") from exc
    digits = match[1]
    if digits is not None and len(digits) > 6 and digits[6:].strip("0"):
        micros += 1  # fromisoformat cuts below the microsecond: round up instead
    return check_range(-(-micros // 1000), field)


def moment_millis(moment: datetime, field: str = "at") -> int:
    """An aware datetime → epoch ms, rounded up."""
    try:
        since = moment - _EPOCH
    except TypeError as exc:
        raise InvalidMessage(field, NAIVE) from exc
    millis = since.days * 86_400_000 + since.seconds * 1000 + -(-since.microseconds // 1000)
    return millis if 0 <= millis <= MAX_TIME else check_range(millis, field)


def parse_duration(value: str | float, field: str = "delay") -> int:
    """Seconds, or "1500ms" "90s" "15m" "2h" "3d" → ms, rounded up."""
    if type(value) is float and 0.0 <= value < _AGES and value.is_integer():
        return int(value) * 1000  # the common form
    if isinstance(value, str):
        millis = _text_millis(value) if len(value) <= 40 else None
        if millis is None and value.startswith("-"):
            raise InvalidMessage(field, "must not be negative")
        if millis is None:
            raise InvalidMessage(
                field, 'must be seconds or a text such as "1500ms", "90s", "15m", "2h", "3d"'
            )
    else:
        if not math.isfinite(value) or value < 0:
            raise InvalidMessage(field, "must be a finite number of seconds, not negative")
        if value == (whole := int(value)):
            millis = whole * 1000
        else:
            # Six digits hide what binary fractions add (0.1 s is 100 ms and not 101), no more.
            millis = math.ceil(round(value * 1000, 6)) if value >= 1e-9 else 1
    if millis > MAX_TIME:
        raise InvalidMessage(field, "is longer than the calendar")
    return millis


@lru_cache(maxsize=256)  # callers repeat a few delays
def _text_millis(text: str) -> int | None:
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else math.ceil(Fraction(match[1]) * _UNIT_MS[match[2]])


def check_range(millis: int, field: str) -> int:
    if not 0 <= millis <= MAX_TIME:
        raise InvalidMessage(field, "is outside 1970-01-01 … 9999-12-31")
    return millis


def format_moment(millis: int) -> str:
    """Epoch ms → RFC 3339 in UTC with milliseconds."""
    seconds, ms = divmod(millis, 1000)
    return _format_second(seconds) + _ENDINGS[ms]


@lru_cache(maxsize=2048)  # the answers of a batch mostly share their seconds
def _format_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def format_duration(millis: int) -> str:
    """Milliseconds → the shortest exact text that parse_duration reads back."""
    for unit in ("d", "h", "m", "s"):
        if millis and millis % _UNIT_MS[unit] == 0:
            return f"{millis // _UNIT_MS[unit]}{unit}"
    return f"{millis}ms"
