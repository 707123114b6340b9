"""`/v1/dead`: what they died of, and once more."""

from __future__ import annotations

from litestar import get, post
from litestar.response.base import ASGIResponse

from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.context import TheApi, query, read_body
from penstock.api.http.shapes import decode_bulk


@get("/v1/dead/groups")
async def group_dead(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = query(request, frozenset({"route"}))
    return json_answer(await api.status.dead_groups(wanted.get("route")))


@post("/v1/dead/redrive", status_code=200)
async def redrive_dead(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api))
    result = await api.parts.control.redrive_where(
        wanted.filter.as_filter(), rate=wanted.per_second(), dry_run=wanted.dry_run
    )
    return json_answer(result)
