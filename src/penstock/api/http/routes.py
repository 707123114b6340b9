"""`/v1/routes`: where messages go, how it stands, pause and resume."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.http.answers import json_answer
from penstock.api.http.auth import Scope
from penstock.api.http.context import Api, TheApi, path_id
from penstock.model.errors import UnknownMessage, UnknownThing
from penstock.model.query import RouteFigures
from penstock.model.times import format_moment
from penstock.settings import redact


class RouteOut(msgspec.Struct, frozen=True, kw_only=True):
    """A route and what the store holds for it."""

    name: str
    sink: str | None
    """None: this process does not know the route, but the store holds messages for it."""
    paused: bool
    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None
    in_flight: int | None = None
    """Sends under way here; None without a worker in this process."""
    capacity: int | None = None
    waiting_for_sink: bool | None = None
    """The sink does not answer at all: its messages wait in the store."""


class RoutesOut(msgspec.Struct, frozen=True):
    items: list[RouteOut]
    next: None = None


class PausedOut(msgspec.Struct, frozen=True):
    name: str
    paused: bool


@get("/v1/routes")
async def list_routes(api: TheApi) -> ASGIResponse:
    store = api.parts.store
    figures = (await store.figures(store.clock.now())).routes
    paused = await store.paused()
    names = sorted(api.parts.routes.keys() | figures.keys())
    return json_answer(
        RoutesOut([_route(api, name, figures.get(name), name in paused) for name in names])
    )


@post("/v1/routes/{name:str}/pause", status_code=200, opt={"scope": Scope.ADMIN})
async def pause_route(name: FromPath[str], api: TheApi) -> ASGIResponse:
    return await _set_paused(name, api, paused=True)


@post("/v1/routes/{name:str}/resume", status_code=200, opt={"scope": Scope.ADMIN})
async def resume_route(name: FromPath[str], api: TheApi) -> ASGIResponse:
    return await _set_paused(name, api, paused=False)


async def _set_paused(raw: str, api: Api, *, paused: bool) -> ASGIResponse:
    try:
        name = path_id(raw)
    except UnknownMessage as exc:
        raise UnknownThing("no such route", field="route") from exc
    store = api.parts.store
    if name not in api.parts.routes:
        held = await store.figures(store.clock.now())
        if name not in held.routes:  # another process may serve it
            raise UnknownThing(f"no route named {name[:100]!r}", field="route")
    await api.parts.control.pause(name, paused)
    return json_answer(PausedOut(name, paused))


def _route(api: Api, name: str, figures: RouteFigures | None, paused: bool) -> RouteOut:
    options = api.parts.settings.all_routes().get(name)
    held = figures if figures is not None else RouteFigures()
    lane = None if api.worker is None else api.worker.lanes.get(name)
    return RouteOut(
        name=name,
        sink=None if options is None else redact(options.sink),
        paused=paused,
        scheduled=held.scheduled,
        overdue=held.overdue,
        leased=held.leased,
        dead=held.dead,
        next_due=None if held.next_due is None else format_moment(held.next_due),
        in_flight=None if lane is None else lane.in_flight,
        capacity=None if lane is None else lane.capacity,
        waiting_for_sink=None if lane is None else lane.breaker.is_open,
    )
