"""`/actuator/*`: what the Dispatcher's monitoring asked for, answered by the same names."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.access import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import json_answer, respond
from penstock.api.http.context import Api, TheApi
from penstock.model.errors import PenstockError, UnknownThing
from penstock.telemetry.rooms import CONTENT_TYPE, figures_of, render_rooms

OPEN = {"scope": Scope.OPEN}


class Component(msgspec.Struct, frozen=True):
    status: str
    details: dict[str, str | int] = {}


class HealthOut(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    threadPoolActive: int  # noqa: N815 - the name the Dispatcher's monitoring reads
    queueSize: int  # noqa: N815
    components: dict[str, Component]


class Names(msgspec.Struct, frozen=True):
    names: list[str]


class Measurement(msgspec.Struct, frozen=True):
    statistic: str
    value: float


class MetricOut(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    measurements: list[Measurement]
    availableTags: list[str] = []  # noqa: N815 - as Spring's actuator has it


@get("/actuator/health", opt=OPEN)
async def health(api: TheApi) -> ASGIResponse:
    promoter = None if api.rooms is None else api.rooms.promoter
    store = await _store(api)
    return json_answer(
        HealthOut(
            status=store.status,
            threadPoolActive=0 if promoter is None else promoter.figures.active,
            queueSize=0 if promoter is None else promoter.queue_size,
            components={"redis" if _is_redis(api) else "store": store},
        ),
        200 if store.status == "UP" else 503,
    )


@get("/actuator/metrics")
async def metrics(api: TheApi) -> ASGIResponse:
    return json_answer(Names(sorted(figures_of(api.rooms))))


@get("/actuator/metrics/{name:str}")
async def metric(name: FromPath[str], api: TheApi) -> ASGIResponse:
    figures = figures_of(api.rooms)
    if name not in figures:
        raise UnknownThing(f"no metric named {name[:100]!r}")
    values = [Measurement(statistic, value) for statistic, value in figures[name].items()]
    return json_answer(MetricOut(name=name, measurements=values))


@get("/actuator/prometheus")
async def prometheus(api: TheApi) -> ASGIResponse:
    return respond(Answer(200, render_rooms(api.rooms), media=CONTENT_TYPE))


def _is_redis(api: Api) -> bool:
    return "redis" in api.parts.store.name.partition(":")[0]


async def _store(api: Api) -> Component:
    try:
        await api.parts.store.check()
    except PenstockError as exc:
        return Component("DOWN", {"error": exc.message})
    return Component("UP", {"store": api.parts.store.name})
