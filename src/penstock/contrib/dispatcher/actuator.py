"""Answers of `/actuator/*` for the Dispatcher's monitoring, on the API's and on a worker's port."""

from __future__ import annotations

import msgspec

from penstock.contrib.dispatcher.metrics import meter_of, names_of
from penstock.model.errors import PenstockError, UnknownThing
from penstock.ports.store import Store
from penstock.rooms.parts import RoomParts


class Component(msgspec.Struct, frozen=True):
    status: str
    details: dict[str, str | int] = {}


class HealthOut(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    threadPoolActive: int  # noqa: N815 - the name the Dispatcher's monitoring reads
    queueSize: int  # noqa: N815
    components: dict[str, Component]

    @property
    def code(self) -> int:
        """The status of the answer."""
        return 200 if self.status == "UP" else 503


class Names(msgspec.Struct, frozen=True):
    names: list[str]


class Measurement(msgspec.Struct, frozen=True):
    statistic: str
    value: float


class MetricOut(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    baseUnit: str | None = None  # noqa: N815 - as Spring's actuator has it
    measurements: list[Measurement]
    availableTags: list[str] = []  # noqa: N815


async def health_of(store: Store, rooms: RoomParts | None, *, details: bool) -> HealthOut:
    """DOWN when the store does not answer, or the breaker towards it is open."""
    reached = await _store(store)
    shown = reached if details else Component(reached.status)
    components = {store.health_name: shown}
    if rooms is not None:
        components["dispatcher"] = _dispatcher(rooms)
    down = any(component.status == "DOWN" for component in components.values())
    return HealthOut(
        status="DOWN" if down else "UP",
        threadPoolActive=0 if rooms is None else rooms.promoter.figures.active,
        queueSize=0 if rooms is None else rooms.promoter.queue_size,
        components=components,
    )


def metrics_of(rooms: RoomParts | None) -> Names:
    return Names(names_of(rooms))


def metric_of(rooms: RoomParts | None, name: str) -> MetricOut:
    """The metric of this name, or UnknownThing."""
    meter = meter_of(rooms, name)
    if meter is None:
        raise UnknownThing(f"no metric named {name[:100]!r}")
    values = [Measurement(statistic, value) for statistic, value in meter.values.items()]
    return MetricOut(name=name, baseUnit=meter.unit, measurements=values)


def _dispatcher(rooms: RoomParts) -> Component:
    promoter, is_open = rooms.promoter, rooms.away()
    details: dict[str, str | int] = {
        "threadPoolActive": promoter.figures.active,
        "threadPoolSize": promoter.workers,
        "queueSize": promoter.queue_size,
        "queueCapacity": promoter.queue_limit,
        "promotions": promoter.figures.promotions,
        "redisErrors": rooms.calls().errors + promoter.figures.errors,
        "breaker": "open" if is_open else "closed",
    }
    return Component("DOWN" if is_open else "UP", details)


async def _store(store: Store) -> Component:
    try:
        await store.messages.check()
    except PenstockError as exc:
        return Component("DOWN", {"error": exc.message})
    return Component("UP", {"store": store.name})
