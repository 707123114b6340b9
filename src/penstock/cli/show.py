"""Output: tables for people, the JSON of the HTTP API for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from penstock.model.decision import reason_of, verdict_of
from penstock.model.message import Event, Message
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.model.verdict import Verdict
from penstock.model.view import BulkResult, message_out

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.model.status_view import RouteStats

WIDE = 400
"""Columns where there is no terminal: nothing is cut for `grep`."""
_encode = msgspec.json.Encoder().encode


def as_json(value: object) -> None:
    """One line of JSON on stdout."""
    line = _encode(value)
    if b"\n" in line:  # a payload is its caller's own text, line breaks and all
        line = msgspec.json.format(line, indent=-1)
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def as_text(*lines: str) -> None:
    """Lines on stdout, at once: whoever reads them may be waiting."""
    for line in lines:
        print(printable(line), flush=True)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str | None]], none: str = "nothing to show"
) -> None:
    """A table on stdout; columns whose heading starts with > are numbers.

    Without rows it is only `none`, on stderr: headings over nothing look like a fault.
    """
    from rich.table import Table
    from rich.text import Text

    if not rows:
        print(none, file=sys.stderr)
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*(Text(printable(cell or "")) for cell in row))
    _print(drawn)


def message(shown: Message, timeline: list[Event]) -> None:
    """A message and what happened to it."""
    facts = [(name, value) for name, value in _facts(shown) if value]
    width = max(len(name) for name, _ in facts)
    as_text(*(f"{name:<{width}}  {value}" for name, value in facts))
    if timeline:
        as_text("")
        table(
            ("when", "what", ">attempt", "detail"),
            [
                (
                    format_moment(event.at),
                    event.event,
                    None if event.attempt is None else str(event.attempt),
                    event.detail,
                )
                for event in timeline
            ],
        )


def messages(items: Iterable[Message]) -> None:
    table(
        ("id", "route", "state", "due", ">prio", ">attempt", "key", "last error"),
        [
            (
                item.id,
                item.route,
                item.state,
                format_moment(item.due),
                str(item.priority),
                str(item.attempt),
                "" if item.key == item.id else item.key,
                item.last_error,
            )
            for item in items
        ],
        none="no message matches",
    )


def message_json(shown: Message, timeline: list[Event] | None = None) -> None:
    as_json(message_out(shown, timeline))


def route_state(route: RouteStats) -> str:
    """In words of their own: a circuit breaker that is open lets nothing through."""
    if route.paused:
        return "paused"
    return "sink away" if route.waiting_for_sink else "active"


def bulk(result: BulkResult, done: str, *, json: bool, dry_run: bool) -> None:
    """How many a bulk change matched, and of how many it was done."""
    if json:
        as_json(result)
    elif dry_run:
        as_text(f"{result.matched:,} would be {done}")
    else:
        as_text(f"{result.done:,} of {result.matched:,} {done}")


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A moving count on stderr while something long is under way; silent where nobody looks."""
    if not sys.stderr.isatty():
        yield Progress(None, what)
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …") as status:
        yield Progress(status.update, what)


class Progress:
    """Counts what was done."""

    def __init__(self, update: object, what: str) -> None:
        self._update = update
        self._what = what
        self.done = 0

    def add(self, number: int) -> None:
        self.done += number
        if callable(self._update):
            self._update(f"{self._what} … {self.done:,}")


def printable(text: str) -> str:
    """Nothing that could steer a terminal: what others sent is only shown."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def _facts(shown: Message) -> Iterator[tuple[str, str | None]]:
    yield "id", shown.id
    yield "route", shown.route
    yield "state", f"{shown.state}{' (cancel asked)' if shown.cancel_pending else ''}"
    yield "due", format_moment(shown.due)
    yield "key", shown.key
    yield "priority", str(shown.priority)
    yield "attempt", str(shown.attempt)
    yield "version", str(shown.version)
    yield "expires", None if shown.expires is None else format_moment(shown.expires)
    yield "topic", shown.topic
    yield "decided", _decided(shown)
    yield "last error", shown.last_error
    yield "labels", None if shown.labels is None else _encode(shown.labels).decode()
    for name, value in (shown.headers or {}).items():
        yield "header", f"{name}: {value}"
    yield "content type", shown.content_type
    gone = shown.state is State.DELIVERED and not shown.payload
    yield "payload", "(not kept once delivered)" if gone else _payload(shown.payload)


def _decided(shown: Message) -> str | None:
    """The verdict of a message that was not let go, and why; what was let go shows by itself."""
    verdict, reason = verdict_of(shown), reason_of(shown)
    if verdict is None or verdict is Verdict.ALLOW:
        return None
    if reason is None:
        return verdict
    return f"{verdict} by {reason.policy}: {reason.detail}"


def _payload(payload: bytes) -> str:
    if not payload:
        return ""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload):,} bytes"
    return text if len(text) <= 2_000 else f"{text[:2_000]} … ({len(payload):,} bytes)"


def _print(drawn: RenderableType) -> None:
    console().print(drawn)


def console() -> Console:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else WIDE, highlight=False, markup=False)
