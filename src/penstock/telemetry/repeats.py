"""Suppresses repeated warnings, and reports how many there were."""

from __future__ import annotations

import logging
from typing import TypeAlias

WINDOW = 10.0
"""Seconds in which the same warning is written once."""
MAX_KNOWN = 1_000
"""Most different warnings remembered; past it the oldest is dropped."""

SAME = "same"
"""Extra field of a record: groups records whose texts differ only by an example."""

Text: TypeAlias = tuple[str, int, str]


class _Held:
    __slots__ = ("last", "number", "since")

    def __init__(self, record: logging.LogRecord) -> None:
        self.since = record.created
        self.last = record
        self.number = 0


class Repeats:
    """Decides which records to write, by the time of the records."""

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self.known: dict[Text, _Held] = {}

    def admit(self, record: logging.LogRecord) -> list[logging.LogRecord]:
        """The records to write now: summaries that are due, then the record unless it repeats."""
        due = self._expire(record.created)
        if record.levelno < logging.WARNING:
            return [*due, record]
        said = record.__dict__.pop(SAME, None)  # for this filter only, not for the line
        text = (record.name, record.levelno, said or record.getMessage())
        held = self.known.get(text)
        if held is None:
            self.known[text] = _Held(record)
            return [*due, record]
        held.number += 1
        held.last = record
        return due

    def flush(self) -> list[logging.LogRecord]:
        """The summaries of all suppressed repeats."""
        summaries = [_summary(held) for held in self.known.values() if held.number]
        self.known.clear()
        return summaries

    def _expire(self, now: float) -> list[logging.LogRecord]:
        summaries = []
        # In order of their first records. A finalizer that the interpreter runs meanwhile may log,
        # too, and expire the same one.
        while (first := next(iter(self.known.items()), None)) is not None:
            text, held = first
            # After the clock went back, a warning must not stay suppressed for long.
            if 0 <= now - held.since < self._window and len(self.known) <= MAX_KNOWN:
                break
            if self.known.pop(text, None) is held and held.number:
                summaries.append(_summary(held))
        return summaries


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
