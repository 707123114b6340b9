"""Thins out warnings that say the same thing again and again, without hiding how often."""

from __future__ import annotations

import logging
from typing import TypeAlias

WINDOW = 10.0
"""Seconds in which the same warning is written once."""
MAX_KNOWN = 1_000
"""Different warnings kept in mind; past it the oldest is let go."""

SAME = "same"
"""Extra of a record: what it has in common with its like, where its text names an example."""

Text: TypeAlias = tuple[str, int, str]


class _Held:
    __slots__ = ("last", "number", "since")

    def __init__(self, record: logging.LogRecord) -> None:
        self.since = record.created
        self.last = record
        self.number = 0


class Repeats:
    """Decides what is written. Time is that of the records."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self.known: dict[Text, _Held] = {}

    def admit(self, record: logging.LogRecord) -> list[logging.LogRecord]:
        """What to write now: the record unless it is a repeat, after what became due to be told."""
        due = self._expire(record.created)
        if record.levelno < logging.WARNING:
            return [*due, record]
        said = record.__dict__.pop(SAME, None)  # for here only, not for the line
        text = (record.name, record.levelno, said or record.getMessage())
        held = self.known.get(text)
        if held is None:
            self.known[text] = _Held(record)
            return [*due, record]
        held.number += 1
        held.last = record
        return due

    def flush(self) -> list[logging.LogRecord]:
        """Tell everything that is held back."""
        told = [_summary(held) for held in self.known.values() if held.number]
        self.known.clear()
        return told

    def _expire(self, now: float) -> list[logging.LogRecord]:
        told = []
        # In order of their beginnings. A finalizer that the interpreter runs in the middle of this
        # may log, too, and expire the same one.
        while (first := next(iter(self.known.items()), None)) is not None:
            text, held = first
            # A clock that went back must not keep a warning quiet for long.
            if 0 <= now - held.since < self._window and len(self.known) <= MAX_KNOWN:
                break
            if self.known.pop(text, None) is held and held.number:
                told.append(_summary(held))
        return told


def _summary(held: _Held) -> logging.LogRecord:
    last = held.last
    seconds = max(0.0, last.created - held.since)
    return logging.makeLogRecord(
        {
            "name": last.name,
            "levelno": last.levelno,
            "levelname": last.levelname,
            "created": last.created,
            "msg": f"{last.getMessage()} (again, {held.number} times in {seconds:.1f} s)",
            "repeats": held.number,
        }
    )
