"""OpenTelemetry spans of intake and delivery. Imported only where OpenTelemetry is in use."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags

from penstock.model.draft import Draft
from penstock.model.message import Message
from penstock.model.trace import give_trace, trace_of
from penstock.version import __version__

LOOK_SECONDS = 0.05
"""Seconds between checks whether the program has set OpenTelemetry up."""
MAX_LINKS = 128
"""Most links of one span: a batch may be of any length."""


class Spans:
    """One span per batch, never one per message: `penstock.ports.tracer.Tracer`."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """`provider` None uses the one set up for the whole program."""
        self._tracer = trace.get_tracer("penstock", __version__, provider)
        self._is_on = provider is not None
        self._look_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether OpenTelemetry is set up.

        Libraries such as redis-py import it without recording.
        """
        if not self._is_on and (now := time.monotonic()) >= self._look_at:
            # The set-up may come at any time, and stays. Checking costs as much as a small call.
            self._look_at = now + LOOK_SECONDS
            provider = trace.get_tracer_provider()
            self._is_on = not isinstance(provider, trace.ProxyTracerProvider)
        return self._is_on

    @contextmanager
    def intake(self, drafts: Sequence[Draft]) -> Iterator[None]:
        callers = _contexts(draft.headers for draft in drafts)
        # A single caller's span is part of its trace. A batch of many can only link to theirs.
        parent = callers[0] if len(callers) == 1 else None
        span = self._tracer.start_span(
            "penstock intake",
            context=_under(parent),
            kind=SpanKind.CONSUMER,
            links=[] if parent is not None else [Link(context) for context in callers],
            attributes={"messaging.batch.message_count": len(drafts)},
        )
        if span.is_recording():
            own = _traceparent(span.get_span_context())
            for draft in drafts:
                give_trace(draft, own)
        with _ending(span):
            yield

    @contextmanager
    def deliver(self, route: str, sink: str, batch: Sequence[Message]) -> Iterator[None]:
        attributes: dict[str, str | int] = {
            "messaging.batch.message_count": len(batch),
            "penstock.route": route,
            "penstock.sink": sink,
        }
        if len(batch) == 1:
            attributes["messaging.message.id"] = batch[0].id
            attributes["penstock.attempt"] = batch[0].attempt
        span = self._tracer.start_span(
            f"penstock deliver {route}",
            context=Context(),  # a link, because the delay may outlive the scheduling trace
            kind=SpanKind.PRODUCER,
            links=[Link(context) for context in _contexts(message.headers for message in batch)],
            attributes=attributes,
        )
        with _ending(span):
            yield


@contextmanager
def _ending(span: Span) -> Iterator[None]:
    try:
        yield
    except Exception as exc:
        span.record_exception(exc)
        span.set_status(trace.StatusCode.ERROR)
        raise
    finally:
        span.end()


def _contexts(headers: Iterable[Mapping[str, str] | None]) -> list[SpanContext]:
    """The distinct contexts of a batch, in order."""
    found = dict.fromkeys(filter(None, (trace_of(each) for each in headers)))
    return [
        SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
        for trace_id, span_id in islice(found, MAX_LINKS)
    ]


def _under(parent: SpanContext | None) -> Context:
    if parent is None:
        return Context()
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _traceparent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
