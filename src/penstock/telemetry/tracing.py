"""Whether spans are recorded: only if OpenTelemetry is set up, or configured by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from penstock.model.errors import ConfigError, missing_extra
from penstock.ports.tracer import Tracer

EXPORTER = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"


def tracer() -> Tracer | None:
    """The tracer; None unless this program, or a library of it, has imported OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    made: Tracer = import_module("penstock.telemetry.spans").Spans()
    return made


def set_up_tracing() -> Callable[[], None] | None:
    """Set up export for a process of its own by OTEL_TRACES_EXPORTER; returns the shutdown.

    OpenTelemetry's other variables (OTEL_EXPORTER_OTLP_ENDPOINT …) are read by its exporters.
    """
    name = os.environ.get(EXPORTER, "none").strip()
    if name in {"", "none"} or "opentelemetry.trace" in sys.modules:
        return None  # not wanted, or set up already by the program that started this
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
    except ModuleNotFoundError as exc:
        raise missing_extra(f"{EXPORTER}: tracing", "otel") from exc
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        known = ", ".join(sorted({point.name for point in entry_points(group=_GROUP)}))
        raise ConfigError(f"{EXPORTER}: no exporter {name!r} is installed; installed: {known}")
    resource = import_module("opentelemetry.sdk.resources").Resource.create(
        {"service.name": os.environ.get("OTEL_SERVICE_NAME", "penstock")}
    )
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(found[0].load()()))
    import_module("opentelemetry.trace").set_tracer_provider(provider)
    shutdown: Callable[[], None] = provider.shutdown
    return shutdown
