"""Changes to everything that matches a filter; `dry_run` only counts."""

from __future__ import annotations

from litestar import post
from litestar.response.base import ASGIResponse

from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.context import TheApi, read_body
from penstock.api.http.shapes import decode_bulk, decode_move


@post("/v1/messages/cancel", status_code=200)
async def cancel_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api))
    result = await api.parts.control.cancel_where(wanted.filter.as_filter(), dry_run=wanted.dry_run)
    return json_answer(result)


@post("/v1/messages/release", status_code=200)
async def release_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api))
    where = wanted.filter.as_filter()
    return json_answer(await api.parts.control.release_where(where, dry_run=wanted.dry_run))


@post("/v1/messages/reschedule", status_code=200)
async def reschedule_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_move(await read_body(request, api))
    where = wanted.filter.as_filter()
    due = api.parts.intake.due(wanted.at, wanted.delay)
    return json_answer(await api.parts.control.reschedule_where(where, due, dry_run=wanted.dry_run))
