"""A look of the monitor, for people."""

from __future__ import annotations

from rich.console import Console

from penstock.cli.monitor_view import Look, as_lines, as_tables
from penstock.contrib.sms.monitor import SmsLook
from penstock.model.state import State
from penstock.model.status_view import LatenessStats, RouteStats, Stats

SMS = SmsLook(
    queue="sms_queue",
    sent=950,
    failed=50,
    success_rate=0.95,
    average_seconds=0.1234,
    attempts=1_200,
    retried=200,
    rejected=0,
)
ENGINE = Stats(
    now="2030-01-01T00:00:00.000Z",
    version="1",
    uptime=5.0,
    states={State.SCHEDULED: 12_000, State.DELIVERED: 7},
    routes={
        "push": RouteStats(
            scheduled=12_000, overdue=3, leased=1, dead=0, next_due=None, paused=True
        )
    },
    totals={"released": 7},
    counts={},
    lateness={"push": LatenessStats(count=7, mean=1.0, p50=1, p99=5, max=5, early=0)},
)


def _look(sms: SmsLook | None, engine: Stats | None, *errors: str) -> Look:
    return Look(
        at="2030-01-01T10:20:30.400Z",
        systems={"sms": sms},
        engine=engine,
        rates={"released": 3.5} if engine else {},
        errors=list(errors),
    )


def test_lines_have_the_figures_one_line_a_system() -> None:
    sms, engine = as_lines(_look(SMS, ENGINE))
    assert sms.startswith("10:20:30  sms_queue: sent 950  failed 50  success rate 95.0%")
    assert sms.endswith("average time 0.123 s  attempts 1,200")
    assert engine == (
        "10:20:30  engine: scheduled 12,000  delivered 7  released/s 3.5  push late p99 5 ms"
    )


def test_before_anything_ended_there_is_no_rate() -> None:
    nothing = SmsLook(
        queue="q",
        sent=0,
        failed=0,
        success_rate=None,
        average_seconds=None,
        attempts=0,
        retried=0,
        rejected=2,
    )
    (line,) = as_lines(_look(nothing, None))
    assert "success rate –  average time –" in line
    assert line.endswith("rejected 2")


def test_what_cannot_be_read_is_said_beside_the_rest() -> None:
    lines = as_lines(_look(None, ENGINE, "Redis does not answer"))
    assert lines[-1] == "10:20:30  Redis does not answer"


def test_tables_have_the_routes_too() -> None:
    console = Console(width=100, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(as_tables(_look(SMS, ENGINE, "bad \x1b[31m news")))
    text = captured.get()
    for wanted in ("sms_queue", "95.0%", "push", "12,000", "bad \\x1b[31m news"):
        assert wanted in text
