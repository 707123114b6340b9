"""`/v1/routes`: where messages go, how it stands, pause and resume."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.context import LIMITED, Api, TheApi, path_id
from penstock.model.errors import UnknownMessage, UnknownThing
from penstock.model.status_view import RouteStatus

LIMITED_ADMIN = {"scope": Scope.ADMIN, **LIMITED}


class RoutesOut(msgspec.Struct, frozen=True):
    items: list[RouteStatus]
    next: None = None


class PausedOut(msgspec.Struct, frozen=True):
    name: str
    paused: bool


@get("/v1/routes", opt=LIMITED)
async def list_routes(request: HttpRequest, api: TheApi) -> ASGIResponse:
    within = request.auth.routes
    found = await api.status.routes()
    return json_answer(RoutesOut([r for r in found if within is None or r.name in within]))


@post("/v1/routes/{name:str}/pause", status_code=200, opt=LIMITED_ADMIN)
async def pause_route(name: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    return await _set_paused(name, request, api, paused=True)


@post("/v1/routes/{name:str}/resume", status_code=200, opt=LIMITED_ADMIN)
async def resume_route(name: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    return await _set_paused(name, request, api, paused=False)


async def _set_paused(raw: str, request: HttpRequest, api: Api, *, paused: bool) -> ASGIResponse:
    try:
        name = path_id(raw)
    except UnknownMessage as exc:
        raise UnknownThing("no such route", field="route") from exc
    request.auth.check_whole_route(name)
    await api.status.check_route(name)
    await api.parts.control.pause(name, paused)
    api.audit.record(request.auth, "pause" if paused else "resume", f"route {name}")
    return json_answer(PausedOut(name, paused))
