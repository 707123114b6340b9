"""A message goes on with the trace it came with; spans where OpenTelemetry is in use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.model.draft import MAX_HEADERS
from penstock.model.errors import ConfigError
from penstock.model.trace import correlation_of, give_trace, trace_of
from penstock.sdk.asked import draft
from penstock.telemetry import tracing
from penstock.telemetry.spans import MAX_LINKS, Spans
from penstock.testing.sink_suite import message

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "wrong",
    ["", "00", PARENT.upper(), f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", PARENT * 2],
)
def test_what_is_no_traceparent_is_none(wrong: str) -> None:
    assert trace_of({"traceparent": wrong}) is None
    asked = draft()
    give_trace(asked, wrong)
    assert asked.headers is None


def test_a_message_gets_the_trace_of_its_request_unless_it_has_one() -> None:
    without, own = draft(headers={"x": "1"}), draft(headers={"TraceParent": "mine"})
    for each in (without, own):
        give_trace(each, PARENT)
    assert without.headers == {"x": "1", "traceparent": PARENT}
    assert own.headers == {"TraceParent": "mine"}


def test_a_message_with_as_many_headers_as_may_be_keeps_to_them() -> None:
    full = draft(headers={f"h{number}": "x" for number in range(MAX_HEADERS)})
    give_trace(full, PARENT)
    assert len(full.headers or {}) == MAX_HEADERS


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, None),
        ({"x-other": "1"}, None),
        ({"traceparent": PARENT}, TRACE),
        ({"X-Correlation-Id": "order-7", "traceparent": PARENT}, "order-7"),
        ({"x-request-id": "r1"}, "r1"),
    ],
)
def test_a_log_line_can_tell_where_a_message_belongs(
    headers: dict[str, str] | None, found: str | None
) -> None:
    assert correlation_of(headers) == found


@pytest.fixture
def exported() -> Iterator[tuple[Spans, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Spans(provider), exporter
    provider.shutdown()


def linked(span: ReadableSpan) -> set[str]:
    return {f"{link.context.trace_id:032x}" for link in span.links}


def test_taking_a_message_in_is_part_of_its_callers_trace(
    exported: tuple[Spans, InMemorySpanExporter],
) -> None:
    spans, exporter = exported
    asked = draft(headers={"traceparent": PARENT})
    with spans.intake([asked]):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.name == "penstock intake"
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == SPAN
    assert asked.headers == {"traceparent": PARENT}


def test_messages_without_a_trace_get_the_one_they_were_taken_in_with(
    exported: tuple[Spans, InMemorySpanExporter],
) -> None:
    spans, exporter = exported
    one, two = draft(), draft(headers={"traceparent": PARENT})
    other = draft(headers={"traceparent": PARENT.replace("4b", "5b", 1)})
    with spans.intake([one, two, other]):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert trace_of(one.headers) == (
        f"{span.context.trace_id:032x}",
        f"{span.context.span_id:016x}",
    )
    assert len(linked(span)) == 2


def test_a_delivery_is_linked_across_the_delay(
    exported: tuple[Spans, InMemorySpanExporter],
) -> None:
    spans, exporter = exported
    with spans.deliver("push", "log://", [message(headers={"traceparent": PARENT})]):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert linked(span) == {TRACE}
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == "m-1"


def test_a_large_batch_has_a_bounded_number_of_links(
    exported: tuple[Spans, InMemorySpanExporter],
) -> None:
    spans, exporter = exported
    batch = [message(headers={"traceparent": f"00-{n:032x}-{SPAN}-01"}) for n in range(1, 500)]
    with spans.deliver("push", "log://", batch):
        pass
    assert len(exporter.get_finished_spans()[0].links) == MAX_LINKS


def test_a_failed_send_is_an_error_of_its_span(
    exported: tuple[Spans, InMemorySpanExporter],
) -> None:
    spans, exporter = exported
    with pytest.raises(RuntimeError), spans.deliver("push", "log://", [message()]):
        raise RuntimeError("no")
    assert not exporter.get_finished_spans()[0].status.is_ok


def test_without_its_use_opentelemetry_is_not_imported() -> None:
    code = """
import asyncio, sys, penstock

async def main():
    async with penstock.open("sqlite://", routes={"default": print}, worker=True) as engine:
        await engine.schedule("x")

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_an_exporter_that_is_not_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.EXPORTER, "nowhere")
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    with pytest.raises(ConfigError, match="no exporter 'nowhere' is installed"):
        tracing.set_up_tracing()
