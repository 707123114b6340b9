"""A worker with the sinks of its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from penstock.flow.recur import Planter
from penstock.flow.worker import Worker
from penstock.model.errors import ConfigError
from penstock.model.route import Route
from penstock.ports.sink import Sink
from penstock.wiring.contrib import wrapped
from penstock.wiring.parts import Parts
from penstock.wiring.sinks import open_sink


@asynccontextmanager
async def open_worker(
    parts: Parts, sinks: Mapping[str, Sink] | None = None, *, leave_calls: bool = False
) -> AsyncIterator[Worker]:
    """A worker for every configured route, its sinks opened; `sinks` replaces some of them.

    `leave_calls` is passed on to Worker.
    """
    given = sinks or {}
    async with AsyncExitStack() as stack:
        lanes: dict[str, tuple[Route, Sink]] = {}
        _check_keyed(parts)
        for name, options in parts.settings.all_routes().items():
            sink = given[name] if name in given else await open_sink(name, options)
            if name not in given:
                stack.push_async_callback(sink.close)
            lanes[name] = (parts.routes[name], wrapped(parts.settings, name, sink))
        worker = parts.settings.worker
        yield Worker(
            parts.store,
            lanes,
            parts.observer,
            batch_size=worker.batch_size,
            lease=worker.lease,
            gather=worker.gather,
            shutdown=worker.shutdown,
            policies=parts.policies,
            in_flight_bytes=worker.in_flight_bytes,
            leave_calls=leave_calls,
            erase=parts.erase,
            dead_retention=parts.settings.limits.dead_retention,
            planter=_planter(parts),
        )


def _planter(parts: Parts) -> Planter | None:
    rules = parts.store.recurring
    if rules is None or parts.plant is None:
        return None
    return Planter(rules, parts.store, parts.plant)


def _check_keyed(parts: Parts) -> None:
    for name, route in parts.routes.items():
        if route.per_key is not None and parts.store.keyed is None:
            raise ConfigError(
                f"routes.{name}: ordered and max_in_flight_per_key need a store that keeps turns;"
                f" {parts.store.name} does not"
            )
