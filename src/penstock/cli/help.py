"""The help texts of commands: plain text, commands grouped by purpose, plain metavars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, TypeAlias

from typer.core import TyperCommand, TyperGroup

Context: TypeAlias = Any
HelpFormatter: TypeAlias = Any
"""click's formatter: Typer bundles its own click in some versions and depends on it in others."""

COMMON = "Common options"
_METAVARS = {"<str>": "TEXT"} | dict.fromkeys(
    ("<int>", "<int range>", "<float>", "<float range>"), "N"
)
_RANGES = (
    (re.compile(r"\b(\d[\d.]*)<=x<=(\d[\d.]*)"), r"\1 to \2"),
    (re.compile(r"\bx>=(\d[\d.]*)"), r"at least \1"),
    (re.compile(r"\bx<=(\d[\d.]*)"), r"at most \1"),
)


class Command(TyperCommand):
    """A command that lists its own options first, then those of every command."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        write_options(self, ctx, formatter)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        return [self.options_metavar or "", *_arguments(self, ctx)]


class Group(TyperGroup):
    """A group of commands; `panels` puts them under headings."""

    panels: ClassVar[dict[str, tuple[str, ...]]] = {}

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        write_options(self, ctx, formatter)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        width = max(map(len, names))
        placed = {name for panel in self.panels.values() for name in panel}
        rest = tuple(name for name in names if name not in placed)
        for heading, listed in (*self.panels.items(), ("Commands", rest)):
            rows = [
                (name.ljust(width), self.commands[name].short_help or "")
                for name in listed
                if name in names
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def write_options(command: Any, ctx: Context, formatter: HelpFormatter) -> None:
    """Arguments, the command's own options, the common ones."""
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], COMMON: []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        words, text = record
        for pattern, plain in _RANGES:
            text = pattern.sub(plain, text)
        if param.param_type_name == "argument":
            sections["Arguments"].append((_name(param), text.replace("[required]", "").rstrip()))
        else:
            panel = COMMON if param.rich_help_panel == COMMON else "Options"
            sections[panel].append((_plain(words), text))
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)


def _arguments(command: Any, ctx: Context) -> Iterator[str]:
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            yield _name(param) if param.required else f"[{_name(param)}]"


def _name(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.nargs == 1 else f"{name}…"


def _plain(words: str) -> str:
    for typed, metavar in _METAVARS.items():
        words = words.replace(typed, metavar)
    return words
