"""`/v1/routes`: where messages go, how it stands, pause and resume."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.access import Scope
from penstock.api.http.answers import json_answer
from penstock.api.http.context import Api, TheApi, path_id
from penstock.flow.status import RouteStatus
from penstock.model.errors import UnknownMessage, UnknownThing


class RoutesOut(msgspec.Struct, frozen=True):
    items: list[RouteStatus]
    next: None = None


class PausedOut(msgspec.Struct, frozen=True):
    name: str
    paused: bool


@get("/v1/routes")
async def list_routes(api: TheApi) -> ASGIResponse:
    return json_answer(RoutesOut(await api.status.routes()))


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
    await api.status.check_route(name)
    await api.parts.control.pause(name, paused)
    return json_answer(PausedOut(name, paused))
