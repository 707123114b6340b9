"""Changes to everything that matches a filter; `dry_run` only counts."""

from __future__ import annotations

from litestar import post
from litestar.response.base import ASGIResponse

from penstock.api.audit import filter_text
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.context import LIMITED, SMALL_BODY, Api, TheApi, read_body
from penstock.api.http.shapes import decode_bulk, decode_move
from penstock.model.query import Filter
from penstock.model.view import BulkResult


@post("/v1/messages/cancel", status_code=200, opt=LIMITED)
async def cancel_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api, most=SMALL_BODY))
    where = request.auth.narrowed(wanted.filter.as_filter())
    result = await api.parts.control.cancel_where(
        where, dry_run=wanted.dry_run, only=request.auth.covers
    )
    return bulk_answer(request, api, "cancel", where, result, dry_run=wanted.dry_run)


@post("/v1/messages/release", status_code=200, opt=LIMITED)
async def release_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api, most=SMALL_BODY))
    where = request.auth.narrowed(wanted.filter.as_filter())
    result = await api.parts.control.release_where(
        where, dry_run=wanted.dry_run, only=request.auth.covers
    )
    return bulk_answer(request, api, "release", where, result, dry_run=wanted.dry_run)


@post("/v1/messages/reschedule", status_code=200, opt=LIMITED)
async def reschedule_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_move(await read_body(request, api, most=SMALL_BODY))
    where = request.auth.narrowed(wanted.filter.as_filter())
    due = api.parts.intake.due(wanted.at, wanted.delay)
    result = await api.parts.control.reschedule_where(
        where, due, dry_run=wanted.dry_run, only=request.auth.covers
    )
    return bulk_answer(request, api, "reschedule", where, result, dry_run=wanted.dry_run)


def bulk_answer(
    request: HttpRequest, api: Api, verb: str, where: Filter, result: BulkResult, *, dry_run: bool
) -> ASGIResponse:
    """The counts, and the audit line unless nothing was to be changed."""
    if not dry_run:
        api.audit.record(request.auth, verb, filter_text(where), result.done)
    return json_answer(result)
