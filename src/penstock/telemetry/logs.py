"""Logs: stdlib logging in, JSON lines or readable text out, to stderr and optionally a file.

Modules log through `logging.getLogger("penstock.…")` with %-args and `extra={}`; a dict as the
message becomes the fields of the line. Times are UTC with milliseconds. Repeated warnings are
suppressed, and how many there were is reported.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal, TextIO, TypeAlias, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from penstock.model.errors import ConfigError
from penstock.model.times import format_moment

LogFormat = Literal["auto", "json", "text"]

MAX_BYTES = 100 * 1024 * 1024
BACKUPS = 30

WINDOW = 10.0
"""Seconds in which the same warning is written once."""
MAX_KNOWN = 1_000
"""Most different warnings remembered; past it the oldest is dropped."""

SAME = "same"
"""Extra field of a record: groups records whose texts differ only by an example."""

MAX_TEXT = 16_000
"""Characters of one field of a line: an exception's text may be of any length."""

MARGIN = 1_000
"""Characters beside a cut that are searched for secrets, too: it may go through one."""

Text: TypeAlias = tuple[str, int, str]

_SECRET_NAME = re.compile("authorization|password|secret|token|cookie|api_?key", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"(?<=://)(?:[^/@\s]*|[^@\s\"']{0,500})@"  # user and password of a URL; it may have a slash
    r"|\bwhsec_[\w+/=-]+"
    r"|(?<=\b[Bb]earer )[\w.~+/=-]+"
    r"|(?<=\b[Bb]asic )[\w+/=-]{8,}"
)
_SECRET_HINT = re.compile("://|whsec_|earer |asic ")
"""A text without any of these contains no secret; this check is cheap."""


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


class LogHandler(logging.Handler):
    """The one handler of the root logger: thins out repeats, then writes to every target."""

    def __init__(self, targets: Sequence[logging.Handler]) -> None:
        super().__init__()
        self._targets = targets
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; an error in here is reported by logging, never raised."""
        try:
            if record.levelno < logging.WARNING and not self._repeats.known:
                for target in self._targets:
                    target.handle(record)
                return
            for each in self._repeats.admit(record):
                for target in self._targets:
                    target.handle(each)
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end a worker
            self.handleError(record)

    def close(self) -> None:
        """Write summaries of suppressed repeats, and close the targets opened here."""
        for summary in self._repeats.flush():
            for target in self._targets:
                target.handle(summary)
        for target in self._targets:
            target.close()
        super().close()


def setup_logging(
    level: str = "info",
    log_format: LogFormat = "auto",
    file: Path | None = None,
    *,
    stream: TextIO | None = None,
    console: bool = True,
    max_bytes: int = MAX_BYTES,
    backups: int = BACKUPS,
    process: int | None = None,
) -> LogHandler:
    """Send all logs to `stream` (stderr) and, rotated, to `file`; replaces an earlier set-up.

    auto: text in a terminal, JSON elsewhere. The file is always JSON. Without `console` only the
    file is written. `process`: which one of several this is; each line says so, and the file is one
    of its own, since only one process can rotate it.
    """
    if process is not None and file is not None:
        file = file.with_suffix(f".{process}{file.suffix}")
    stream = stream if stream is not None else sys.stderr
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    targets: list[logging.Handler] = []
    if console:
        targets.append(logging.StreamHandler(stream))
        targets[0].setFormatter(_formatter(_text(stream) if text else _JSON, process))
    if file is not None:
        targets.append(_rotating(file, max_bytes, backups, process))
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, LogHandler)]:
        root.removeHandler(earlier)
        earlier.close()
    handler = LogHandler(targets)
    root.addHandler(handler)
    wanted = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger("penstock").setLevel(wanted)
    root.setLevel(max(wanted, logging.INFO))  # libraries' debug lines are never shown
    logging.captureWarnings(True)
    return handler


def private(path: str, flags: int) -> int:
    """An opener for `open`: files it creates are readable by this user only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class _PrivateFile(RotatingFileHandler):
    """A log names ids, keys and errors, so its files are readable by this user only."""

    def _open(self) -> TextIOWrapper:
        file = open(  # noqa: SIM115 - the handler closes it
            self.baseFilename, self.mode, encoding=self.encoding, opener=private
        )
        return cast("TextIOWrapper", file)


def _rotating(file: Path, max_bytes: int, backups: int, process: int | None) -> logging.Handler:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = _PrivateFile(file, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"log.file: cannot write {file}: {exc.strerror}") from exc
    handler.setFormatter(_formatter(_JSON, process))
    return handler


def _formatter(renderer: Sequence[Processor], process: int | None) -> logging.Formatter:
    def which(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return event if process is None else {**event, "process": process}

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            _moment,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            _fields,
            which,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
    )


def _text(stream: TextIO) -> list[Processor]:
    colors = stream.isatty() and "NO_COLOR" not in os.environ
    plain = structlog.dev.plain_traceback  # the pretty one shows local variables, and so secrets
    return [
        structlog.processors.format_exc_info,
        _without_secrets,
        structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain),
    ]


def _encode(event: EventDict, **_options: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _moment(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record: logging.LogRecord = event["_record"]
    return {"timestamp": format_moment(int(record.created * 1000)), **event}


def _fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Make a logged dict the line's fields, without other handlers' marks."""
    event.pop("message", None)
    event.pop("asctime", None)
    said = event["_record"].msg
    if isinstance(said, dict):
        event.update(said)
    return event


def _without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Redact secrets, cut very long texts in their middle, escape what UTF-8 cannot write."""
    for name, value in event.items():
        if _is_secret(name):
            event[name] = "***"
        elif isinstance(value, str):
            text = _blotted(value) if len(value) <= MAX_TEXT else _cut(value)
            event[name] = text if text.isascii() else _writable(text)
    return event


def _blotted(text: str) -> str:
    return _SECRET_TEXT.sub(_blot, text) if _SECRET_HINT.search(text) else text


def _cut(text: str) -> str:
    half = MAX_TEXT // 2
    head = _blotted(text[: half + MARGIN])[:-MARGIN]
    tail = _blotted(text[-half - MARGIN :])[MARGIN:]
    return f"{head} … {len(text) - 2 * half} characters left out … {tail}"


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=1024)  # the same few names repeat
def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _blot(found: re.Match[str]) -> str:
    return "***@" if found[0].endswith("@") else "***"


_JSON: list[Processor] = [
    structlog.processors.format_exc_info,
    _without_secrets,
    structlog.processors.EventRenamer("message"),
    structlog.processors.JSONRenderer(serializer=_encode),
]
