"""`/v1/dead`: what they died of, once more, and the end of them. `/v1/forget`: all of a key."""

from __future__ import annotations

import hashlib

import msgspec
from litestar import get, post
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.bulk import bulk_answer
from penstock.api.http.context import LIMITED, SMALL_BODY, TheApi, query, read_body
from penstock.api.http.shapes import decode_bulk
from penstock.model.errors import InvalidMessage
from penstock.model.query import Filter
from penstock.model.wire import read_json


class ForgetIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose messages and counters are erased; `cursor`: from where an earlier call stopped."""

    key: str
    cursor: str | None = None


_forget = msgspec.json.Decoder(ForgetIn)


@get("/v1/dead/groups", opt=LIMITED)
async def group_dead(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = query(request, frozenset({"route"}))
    where = request.auth.narrowed(Filter(route=wanted.get("route")), "")
    return json_answer(await api.status.dead_groups(where.route))


@post("/v1/dead/redrive", status_code=200, opt=LIMITED)
async def redrive_dead(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api, most=SMALL_BODY))
    where = request.auth.narrowed(wanted.filter.as_filter())
    result = await api.parts.control.redrive_where(
        where, rate=wanted.per_second(), dry_run=wanted.dry_run, only=request.auth.covers
    )
    return bulk_answer(request, api, "redrive", where, result, dry_run=wanted.dry_run)


@post("/v1/dead/delete", status_code=200, opt=LIMITED)
async def delete_dead(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = decode_bulk(await read_body(request, api, most=SMALL_BODY))
    if wanted.rate is not None:
        raise InvalidMessage("rate", "is for a redrive")
    where = request.auth.narrowed(wanted.filter.as_filter())
    result = await api.parts.control.delete_where(
        where, dry_run=wanted.dry_run, only=request.auth.covers
    )
    return bulk_answer(request, api, "delete", where, result, dry_run=wanted.dry_run)


@post("/v1/forget", status_code=200, opt={"scope": Scope.ADMIN})
async def forget_key(request: HttpRequest, api: TheApi) -> ASGIResponse:
    wanted = read_json(_forget, await read_body(request, api, most=SMALL_BODY))
    if not wanted.key:
        raise InvalidMessage("key", "must be given")
    erased = await api.parts.erase.erase(wanted.key, wanted.cursor)
    # The log outlives the erasure: it tells keys apart without naming them.
    digest = hashlib.sha256(wanted.key.encode()).hexdigest()[:12]
    api.audit.record(request.auth, "forget", f"key sha256:{digest}", erased.messages)
    return json_answer(erased)
