"""Output: tables and times for people, the JSON of the HTTP API for machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

import msgspec

from penstock.model.decision import reason_of, verdict_of
from penstock.model.message import DEFAULT_PRIORITY, Event, Message
from penstock.model.state import State
from penstock.model.times import format_moment, parse_moment
from penstock.model.verdict import Verdict
from penstock.model.view import message_out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from penstock.model.status_view import RouteStats

GAP = 2
"""Spaces between two columns."""
LEAST = 8
"""Characters that a column keeps however narrow the terminal is."""
STYLES = {
    State.DEAD: "red",
    State.BLOCKED: "red",
    State.EXPIRED: "red",
    State.LEASED: "cyan",
    State.DELIVERED: "green",
    State.CANCELLED: "dim",
    "deferred": "yellow",
    "paused": "yellow",
    "no worker": "yellow",
    "sink away": "red",
    "sink never reached": "red",
    "failed": "red",
    "warning": "yellow",
    "ok": "green",
}
"""Colours of states, on a terminal and without NO_COLOR."""
HOUR = 3_600
"""Seconds; a longer span is shown in two units."""
_UNITS = ((86_400, "d"), (HOUR, "h"), (60, "min"), (1, "s"))
_encode = msgspec.json.Encoder().encode


class Cell(NamedTuple):
    """Text with the style of another word than its own."""

    text: str
    style: str


Shown: TypeAlias = str | Cell | None


def as_json(value: object) -> None:
    """Print one line of JSON on stdout."""
    line = _encode(value)
    if b"\n" in line:  # a payload is its caller's own text, line breaks and all
        line = msgspec.json.format(line, indent=-1)
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def as_text(*lines: str) -> None:
    """Lines on stdout, flushed: a program that reads them may be waiting."""
    for line in lines:
        print(printable(line), flush=True)


@dataclass(frozen=True, slots=True)
class Times:
    """Moments as people read them: relative on a terminal, RFC 3339 elsewhere.

    `local`: in the zone of this machine with its offset, and never relative.
    """

    local: bool
    terminal: bool

    def exact(self, millis: int) -> str:
        if not self.local:
            return format_moment(millis)
        moment = datetime.fromtimestamp(millis / 1000).astimezone()
        return moment.isoformat(timespec="milliseconds")

    def near(self, millis: int) -> str:
        """The moment for tables: "in 59 min" on a terminal, or its local time to the second."""
        if not self.terminal:
            return self.exact(millis)
        return local_time(millis, now()) if self.local else relative(millis, now())

    def both(self, millis: int) -> str:
        """The moment for sentences: exact, and on a terminal also relative."""
        aside = f" ({relative(millis, now())})" if self.terminal else ""
        return f"{self.exact(millis)}{aside}"

    def near_text(self, moment: str | None) -> str | None:
        """`near` of an RFC 3339 text."""
        return None if moment is None else self.near(parse_moment(moment))


UTC = Times(local=False, terminal=False)


def now() -> int:
    """This machine's clock in epoch milliseconds."""
    return int(time.time() * 1000)


def relative(millis: int, now: int) -> str:
    """ "in 59 min", "2 d 23 h ago", "now": rounded down."""
    seconds = abs(millis - now) // 1000
    if seconds == 0:
        return "now"
    words = _span(seconds)
    return f"in {words}" if millis > now else f"{words} ago"


def local_time(millis: int, now: int) -> str:
    """ "15:23:08+09:00" today, "2026-11-22 15:23+09:00" on other days: short enough for a table."""
    moment, today = (datetime.fromtimestamp(one / 1000).astimezone() for one in (millis, now))
    if moment.date() == today.date():
        return moment.timetz().isoformat(timespec="seconds")
    return moment.isoformat(sep=" ", timespec="minutes")


def _span(seconds: int) -> str:
    for position, (size, unit) in enumerate(_UNITS):
        count, rest = divmod(seconds, size)
        if not count:
            continue
        smaller, name = _UNITS[min(position + 1, len(_UNITS) - 1)]
        exact = f"{count} {unit}"
        return f"{exact} {rest // smaller} {name}" if size >= HOUR and rest >= smaller else exact
    return "0 s"


def table(
    headings: Sequence[str], rows: Sequence[Sequence[Shown]], none: str = "nothing to show"
) -> None:
    """A table on stdout, without columns that are empty.

    A heading that starts with > is a column of numbers, with ~ one that a narrow terminal cuts
    short with …, with / one that it folds; any other column, an id above all, is whole on its line.
    Without rows it is only `none`, on stderr: headings over nothing look like a fault.
    """
    if not rows:
        print(none, file=sys.stderr)
        return
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    texts = [[_as_text(cell) for cell in row] for row in rows]
    used = [i for i in range(len(headings)) if any(row[i][0] for row in texts)]
    names = {i: headings[i].lstrip(">~/") for i in used}
    widths = {i: max(cell_len(names[i]), *(cell_len(row[i][0]) for row in texts)) for i in used}
    page = console()
    if page.is_terminal:
        _narrow(widths, [i for i in used if headings[i].startswith(("~", "/"))], page.width)
    page.width = sum(widths.values()) + GAP * len(used)
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for i in used:
        folds = headings[i].startswith("/")
        drawn.add_column(
            names[i],
            justify="right" if headings[i].startswith(">") else "left",
            overflow="fold" if folds else "ellipsis",
            no_wrap=not folds,
            width=widths[i],
        )
    for row in texts:
        drawn.add_row(*(Text(row[i][0], style=row[i][1]) for i in used))
    with page.capture() as captured:
        page.print(drawn)
    for line in captured.get().splitlines():
        print(line.rstrip())  # padding would fold the lines of a log


def _as_text(cell: Shown) -> tuple[str, str]:
    text, style = cell if isinstance(cell, Cell) else (cell or "", cell or "")
    return " ".join(printable(text).splitlines()), STYLES.get(style, "")


def _narrow(widths: dict[int, int], flexible: Sequence[int], room: int) -> None:
    """Take from the widest of the flexible columns until the table fits, or none can give more."""
    over = sum(widths.values()) + GAP * len(widths) - room
    while over > 0:
        widest = max(flexible, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= LEAST:
            return
        others = [widths[i] for i in flexible if i != widest]
        floor = max(LEAST, *others, widths[widest] - over) if others else LEAST
        taken = min(over, max(1, widths[widest] - floor))
        widths[widest] -= taken
        over -= taken


def message(shown: Message, timeline: list[Event], times: Times = UTC) -> None:
    """Print a message and its timeline."""
    facts([(name, value) for name, value in _facts(shown, times) if value])
    if timeline:
        as_text("")
        table(
            ("when", "what", ">attempt", "/detail"),
            [
                (
                    times.exact(event.at),
                    event.event,
                    None if event.attempt is None else str(event.attempt),
                    event.detail,
                )
                for event in timeline
            ],
        )


def facts(pairs: Sequence[tuple[str, Shown]]) -> None:
    """Names and values, one pair per line."""
    from rich.text import Text

    width = max(len(name) for name, _ in pairs)
    page = console()
    for name, value in pairs:
        text, style = value if isinstance(value, Cell) else (value or "", value or "")
        line = Text(f"{name:<{width}}  ")
        line.append(printable(text), style=STYLES.get(style, ""))
        page.print(line, soft_wrap=True)


def messages(items: Iterable[Message], times: Times) -> None:
    table(
        ("id", "~route", "state", "due", ">prio", ">attempt", "~key", "~held by", "~last error"),
        [
            (
                item.id,
                item.route,
                _state(item),
                times.near(item.due),
                None if item.priority == DEFAULT_PRIORITY else str(item.priority),
                str(item.attempt) if item.attempt else None,
                None if item.key == item.id else item.key,
                _held_by(item),
                item.last_error,
            )
            for item in items
        ],
        none="no message matches",
    )


def _state(shown: Message) -> Cell:
    deferred = _held_by(shown) is not None and shown.state is State.SCHEDULED
    return Cell(shown.state, "deferred" if deferred else shown.state)


def _held_by(shown: Message) -> str | None:
    """The policy that did not let it go."""
    verdict, reason = verdict_of(shown), reason_of(shown)
    return None if reason is None or verdict is Verdict.ALLOW else reason.policy


def message_json(shown: Message, timeline: list[Event] | None = None) -> None:
    as_json(message_out(shown, timeline))


def route_state(route: RouteStats) -> str:
    """Whether messages of the route are sent, in a word."""
    if route.paused:
        return "paused"
    if route.waiting_for_sink:
        return "sink away"
    return "sink never reached" if route.reached is False else "active"


class Progress:
    """A moving count on stderr while something long is under way; only on a terminal."""

    BAR = 30

    def __init__(self, what: str) -> None:
        self._what = what
        self._status: Status | None = None
        self.done = 0
        self.total: int | None = None
        """The approximate number of steps, if known; then there is a bar."""

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status(f"{self._what} …")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def add(self, number: int) -> None:
        self.done += number
        if self._status is not None:
            self._status.update(self.text)

    @property
    def text(self) -> str:
        if not self.total:
            return f"{self._what} … {self.done:,}"
        share = min(1.0, self.done / self.total)
        bar = ("█" * round(share * self.BAR)).ljust(self.BAR, "░")
        return f"{self._what} {bar} {share:.0%}  {self.done:,} of {self.total:,}"


def progress(what: str) -> Progress:
    return Progress(what)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def full_address(store: str) -> str:
    """A store's address with its absolute path."""
    path = store.removeprefix("sqlite:///")
    return f"sqlite:///{Path(path).absolute()}" if path not in (store, "") else store


def printable(text: str) -> str:
    """The text without characters that could control a terminal: others wrote it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _facts(shown: Message, times: Times) -> Iterator[tuple[str, Shown]]:
    yield "id", shown.id
    yield "route", shown.route
    asked = " (a cancel waits for the send under way)" if shown.cancel_pending else ""
    yield "state", Cell(f"{shown.state}{asked}", _state(shown).style)
    yield "due", times.both(shown.due)
    yield "key", shown.key
    yield "priority", str(shown.priority)
    yield "attempt", str(shown.attempt)
    yield "version", str(shown.version)
    yield "expires", None if shown.expires is None else times.both(shown.expires)
    yield "topic", shown.topic
    yield "decided", _decided(shown)
    yield "last error", shown.last_error
    yield "labels", None if shown.labels is None else _encode(shown.labels).decode()
    for name, value in (shown.headers or {}).items():
        yield "header", f"{name}: {value}"
    yield "content type", shown.content_type
    gone = shown.state is State.DELIVERED and not shown.payload
    yield "payload", "(not kept once delivered)" if gone else payload_text(shown.payload)


def _decided(shown: Message) -> str | None:
    """The verdict about a message that was not sent, and its reason; None for others."""
    verdict, reason = verdict_of(shown), reason_of(shown)
    if verdict is None or verdict is Verdict.ALLOW:
        return None
    if reason is None:
        return verdict
    return f"{verdict} by {reason.policy}: {reason.detail}"


def payload_text(payload: bytes) -> str:
    """The text of a payload, cut if it is long; of other bytes, how many."""
    if not payload:
        return ""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload):,} bytes"
    return text if len(text) <= 2_000 else f"{text[:2_000]} … ({len(payload):,} bytes)"


def console() -> Console:
    """Standard output; colours only on a terminal, and not where NO_COLOR is set."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)
