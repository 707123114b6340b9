"""Lines of many processes on one screen: prefixed, coloured on a terminal, plain in a pipe.

Processes that write to a pipe log JSON; people get the message and its fields instead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow")
RUNNER = "systems"
"""The prefix of the runner's own lines."""
_NOT_SHOWN = frozenset({"timestamp", "level", "logger", "message"})
_GRAVE = frozenset({"warning", "error", "critical"})


class Output:
    """Where a run prints: one line at a time, each named by its process."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._fancy = self._console.is_terminal
        self._colours: dict[str, str] = {}
        self._width = len(RUNNER)
        self._status: Live | None = None
        self.expect(names)

    def expect(self, names: Iterable[str]) -> None:
        """Leave room for these prefixes."""
        self._width = max([self._width, *map(len, names)])

    def line(self, name: str, text: str) -> None:
        self._print(name, readable(text), self._colour(name))

    def note(self, text: str) -> None:
        """A line of the runner's own."""
        self._print(RUNNER, text, "bold")

    def problem(self, text: str) -> None:
        self._print(RUNNER, text, "bold red")

    def rates(self, rates: Mapping[str, int]) -> None:
        """The system's rates of this second: the status line, or in a pipe a line of its own."""
        text = " · ".join(f"{what}: {number:,}" for what, number in rates.items())
        if not text:
            return
        if not self._fancy:
            self._print("rates", text, "")
            return
        if self._status is None:
            self._status = Live(console=self._console, transient=True, auto_refresh=False)
            self._status.start()
        self._status.update(Text(text, style="reverse", no_wrap=True), refresh=True)

    def plain(self, lines: Iterable[str]) -> None:
        """Lines without a prefix: tables and the verdict."""
        self.end_status()
        for line in lines:
            self._console.print(line)
        sys.stdout.flush()

    def end_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _print(self, name: str, text: str, style: str) -> None:
        prefix = f"{name:<{self._width}} | "
        if self._fancy:
            self._console.print(Text.assemble((prefix, style), text))
        else:
            sys.stdout.write(f"{prefix}{text}\n")
            sys.stdout.flush()

    def _colour(self, name: str) -> str:
        if name not in self._colours:
            self._colours[name] = COLOURS[len(self._colours) % len(COLOURS)]
        return self._colours[name]


def readable(line: str) -> str:
    """A line of JSON logs as its message and fields; any other line as it is."""
    if not line.startswith("{"):
        return line
    try:
        said: Any = json.loads(line)
    except ValueError:
        return line
    if not isinstance(said, dict) or "message" not in said:
        return line
    level = f"{said['level']}: " if said.get("level") in _GRAVE else ""
    more = " ".join(f"{key}={value}" for key, value in said.items() if key not in _NOT_SHOWN)
    return f"{level}{said['message']}{f'  {more}' if more else ''}"
