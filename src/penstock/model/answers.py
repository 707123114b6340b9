"""Reading a receiver's answer: Retry-After, and texts cleaned for storing and showing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime

MAX_SAID = 200
"""Characters kept of a receiver's text."""
_SHORTEST_SECRET = 8
"""Shorter secrets are not redacted: they would match ordinary text."""
_NOT_TEXT = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Scrubber:
    """Cuts a foreign text to one line of MAX_SAID characters and redacts the given secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long_enough = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        # longest first, so that no part of a longer secret remains
        self._secrets = sorted(long_enough, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        line = " ".join(_NOT_TEXT.sub(" ", text).split())
        return line if len(line) <= MAX_SAID else line[: MAX_SAID - 1] + "…"


def storable(text: str, most: int) -> str:
    """The first so many characters, with what a store or a log cannot take written as an escape.

    That is NUL, which PostgreSQL refuses, and half a surrogate pair, which UTF-8 does not have.
    """
    cut = text[:most]
    if cut.isprintable():
        return cut
    return cut.encode("utf-8", "backslashreplace").decode().replace("\x00", r"\x00")


def retry_after(text: str | None, now: float) -> float | None:
    """Retry-After (seconds or an HTTP date) → seconds from `now`.

    None if unreadable, and for no wait at all: the route's own backoff is gentler.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return (float(text) or None) if len(text) <= 18 else None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:  # "-0000"; an HTTP date is always GMT
        return None
    wait = moment.timestamp() - now
    return wait if wait > 0 else None
