"""One refresh of the monitor: as a value, as lines, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.show import printable, route_state
from penstock.model.status_view import Stats

NONE = "–"


class SystemLook(Protocol):
    """A system beside the engine, at a moment; a struct, since it is shown as JSON too."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> list[tuple[str, str]]: ...


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the engine and the systems at a moment."""

    at: str
    systems: Mapping[str, SystemLook | None]
    """Systems that may be watched beside the engine, by their names."""
    engine: Stats | None
    rates: dict[str, float]
    """Events per second of the engine's process since the previous refresh, by stage."""
    errors: list[str]

    @property
    def found(self) -> bool:
        return self.engine is not None or any(self.shown)

    @property
    def shown(self) -> dict[str, SystemLook]:
        """The systems that answered."""
        return {name: look for name, look in self.systems.items() if look is not None}

    def as_json(self) -> dict[str, object]:
        """The value as JSON, each system under its own name."""
        fields = msgspec.structs.asdict(self)
        return {"at": fields.pop("at"), **fields.pop("systems"), **fields}


def as_lines(look: Look) -> list[str]:
    when = look.at[11:19]
    lines = [f"{when}  {one.name}: {_pairs(one.facts)}" for one in look.shown.values()]
    if look.engine is not None:
        lines.append(f"{when}  engine: {_pairs(_engine_facts(look.engine, look.rates))}")
    return lines + [f"{when}  {error}" for error in look.errors]


def as_tables(look: Look) -> RenderableType:
    parts: list[RenderableType] = [Text(f"Penstock at {look.at}", style="bold")]
    for name, one in look.shown.items():
        parts.append(_table(f"{name}: {one.name}", one.facts))
    if look.engine is not None:
        parts.append(_table("engine", _engine_facts(look.engine, look.rates)))
        parts.append(_routes(look.engine))
    parts += [Text(printable(error), style="red") for error in look.errors]
    return Group(*parts)


def _engine_facts(engine: Stats, rates: dict[str, float]) -> list[tuple[str, str]]:
    facts = [(str(state), f"{number:,}") for state, number in engine.states.items()]
    facts += [(f"{stage}/s", f"{rate:,.1f}") for stage, rate in rates.items()]
    for route, late in engine.lateness.items():
        facts.append((f"{route} late p99", NONE if late.p99 is None else f"{late.p99:,} ms"))
    return facts


def _pairs(facts: list[tuple[str, str]]) -> str:
    return "  ".join(f"{name} {value}" for name, value in facts)


def _table(title: str, facts: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None)
    for name, value in facts:
        table.add_row(name, value)
    return table


def _routes(engine: Stats) -> Table:
    table = Table(title="routes", title_justify="left", box=None, header_style="bold")
    for heading in ("route", "state", "scheduled", "overdue", "leased", "dead", "next due"):
        words = heading in {"route", "state", "next due"}
        table.add_column(heading, justify="left" if words else "right")
    for name, route in engine.routes.items():
        figures = (route.scheduled, route.overdue, route.leased, route.dead)
        numbers = (f"{figure:,}" for figure in figures)
        table.add_row(name, route_state(route), *numbers, route.next_due or "")
    return table
