"""One look of the monitor: as a value, as lines, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.show import printable, route_state
from penstock.model.status_view import Stats

if TYPE_CHECKING:
    from penstock.sim.sms.stats import SmsFigures

NONE = "–"


class SmsLook(msgspec.Struct, frozen=True, kw_only=True):
    """The SMS system; `failed` are messages that failed for good, attempts are counted apart."""

    queue: str
    sent: int
    failed: int
    success_rate: float | None
    """Of the messages that came to an end."""
    average_seconds: float | None
    """A message's time with the provider, all its attempts together."""
    attempts: int
    retried: int
    rejected: int
    repeated: int = 0
    """Sends of messages that had come to an end."""


def sms_look(queue: str, figures: SmsFigures) -> SmsLook:
    return SmsLook(
        queue=queue,
        sent=figures.sent,
        failed=figures.failed,
        success_rate=figures.success_rate,
        average_seconds=figures.average_seconds,
        attempts=figures.attempts,
        retried=figures.retried,
        rejected=figures.rejected,
        repeated=figures.repeated,
    )


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand at a moment."""

    at: str
    sms: SmsLook | None
    engine: Stats | None
    rates: dict[str, float]
    """What the engine's process did a second since the look before, by stage."""
    errors: list[str]

    @property
    def found(self) -> bool:
        return self.sms is not None or self.engine is not None


def as_lines(look: Look) -> list[str]:
    when = look.at[11:19]
    lines = []
    if look.sms is not None:
        lines.append(f"{when}  {look.sms.queue}: {_pairs(_sms_facts(look.sms))}")
    if look.engine is not None:
        lines.append(f"{when}  engine: {_pairs(_engine_facts(look.engine, look.rates))}")
    return lines + [f"{when}  {error}" for error in look.errors]


def as_tables(look: Look) -> RenderableType:
    parts: list[RenderableType] = [Text(f"Penstock at {look.at}", style="bold")]
    if look.sms is not None:
        parts.append(_table(f"SMS: {look.sms.queue}", _sms_facts(look.sms)))
    if look.engine is not None:
        parts.append(_table("engine", _engine_facts(look.engine, look.rates)))
        parts.append(_routes(look.engine))
    parts += [Text(printable(error), style="red") for error in look.errors]
    return Group(*parts)


def _sms_facts(sms: SmsLook) -> list[tuple[str, str]]:
    rate, average = sms.success_rate, sms.average_seconds
    return [
        ("sent", f"{sms.sent:,}"),
        ("failed", f"{sms.failed:,}"),
        ("success rate", NONE if rate is None else f"{rate:.1%}"),
        ("average time", NONE if average is None else f"{average:.3f} s"),
        ("attempts", f"{sms.attempts:,}"),
        *([("rejected", f"{sms.rejected:,}")] if sms.rejected else []),
        *([("repeated", f"{sms.repeated:,}")] if sms.repeated else []),
    ]


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
