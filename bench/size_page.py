"""The tables of docs/run/sizing.md, from the figures that `penstock size` reckons with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.cli.size.plan import Cpu, Figures, Load, figures, plan

PAGE = Path(__file__).parents[1] / "docs/run/sizing.md"
BEGIN, END = "<!-- figures: written by `python -m bench size` -->", "<!-- end of figures -->"
EXAMPLES = {
    "penstock size --rate 50k/s --pending 200M --store redis": Load(50_000, 200_000_000, "redis"),
    "penstock size --rate 2k/s --pending 5M --store sqlite --payload 400": Load(
        2_000, 5_000_000, "sqlite", 400
    ),
    "penstock size --rate 1M/h --pending 40M --store postgresql": Load(
        1_000_000 / 3_600, 40_000_000, "postgresql"
    ),
    "penstock size --rate 1M/h --pending 40M --store dynamodb": Load(
        1_000_000 / 3_600, 40_000_000, "dynamodb"
    ),
}


def write() -> None:
    """Put the tables of the figures as they are now into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + region(figures()) + rest.partition(END)[2])


def region(known: Figures) -> str:
    """From BEGIN to END."""
    return "\n".join([BEGIN, "", *_tables(known), "", *_examples(), END])


def _tables(known: Figures) -> Iterable[str]:
    yield f"Measured on {known.when}: {known.machine}; payloads of {known.payload} bytes."
    yield ""
    yield from _table(
        (
            "µs of CPU a message",
            "put: process",
            "put: server",
            "release: worker",
            "release: server",
        ),
        [_cpu(name, cpu) for name, cpu in _cpus(known)],
    )
    yield ""
    yield from _table(
        ("µs of CPU a message, HTTP on SQLite, put included", "API"),
        [
            ("one message a request, 64 callers", f"{known.http.single:.1f}"),
            ("NDJSON batches", f"{known.http.batch:.1f}"),
        ],
    )
    yield ""
    yield from _table(
        (
            *("bytes a message", "pending", "settled, while it is known"),
            *("for a byte of payload more", "network, put to settlement", "log, put to settlement"),
        ),
        [
            (
                name,
                f"{store.bytes.pending:,.0f}",
                f"{store.bytes.settled:,.0f}",
                f"{store.bytes.per_payload:.2f}",
                f"{store.bytes.wire:,.0f}" if store.bytes.wire else "–",
                f"{store.bytes.log:,.0f}",
            )
            for name, store in known.stores.items()
        ],
    )


def _cpus(known: Figures) -> Iterable[tuple[str, Cpu]]:
    for name, store in known.stores.items():
        yield name, store.cpu
        if store.cluster_cpu is not None:
            yield f"{name}, in a cluster", store.cluster_cpu


def _cpu(name: str, cpu: Cpu) -> tuple[str, ...]:
    server = (f"{cpu.server_put:.1f}", f"{cpu.server_release:.1f}") if cpu.server else ("–", "–")
    return (name, f"{cpu.put:.1f}", server[0], f"{cpu.release:.1f}", server[1])


def _examples() -> Iterable[str]:
    for command, load in EXAMPLES.items():
        yield f"`{command}`"
        yield ""
        lines = plan(load).lines
        yield from _table(
            ("what", "how much", "why"), [(line.what, line.text, line.why) for line in lines]
        )
        yield ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'--:|' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
