"""`/v1/messages`: put, look up, list, change, cancel, release."""

from __future__ import annotations

from typing import Literal

import msgspec
from litestar import delete, get, patch, post
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.grants import Grant, check_change, check_drafts
from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, json_answer, respond
from penstock.api.http.auth import PATCH_TYPES
from penstock.api.http.context import (
    LIMITED,
    Api,
    TheApi,
    page_limit,
    path_id,
    query,
    read_body,
    traceparent,
    version_wanted,
)
from penstock.api.http.shapes import FilterIn
from penstock.model.draft import Draft, decode_draft
from penstock.model.errors import InvalidMessage
from penstock.model.message import Message
from penstock.model.outcome import Receipt
from penstock.model.patch import decode_patch
from penstock.model.query import decode_cursor, encode_cursor
from penstock.model.state import State
from penstock.model.trace import give_trace
from penstock.model.view import PageOut, accepted, message_out

PAGE = 100
MAX_PAGE = 1_000
_LIST = frozenset({"state", "route", "key", "due_from", "due_to", "error", "cursor", "limit"})
_STATE = frozenset({"state"})
_STATES = {state.value: state for state in State}
_encode = msgspec.json.Encoder().encode


def receipt_answer(receipt: Receipt) -> Answer:
    """201 for a new message, 200 for an id seen before."""
    return Answer(200 if receipt.duplicate else 201, _encode(accepted(receipt)))


@post("/v1/messages", opt=LIMITED)
async def create_message(request: HttpRequest, api: TheApi) -> ASGIResponse:
    body = await read_body(request, api)
    api.check_load()
    api.in_flight += 1
    try:
        draft = decode_draft(body)
        give_trace(draft, traceparent(request))
        receipt = await put_as(request.auth, api, draft)
    finally:
        api.in_flight -= 1
    return respond(receipt_answer(receipt))


async def put_as(grant: Grant, api: Api, draft: Draft) -> Receipt:
    """Put one message for the holder of a token, and count it for the audit."""
    if grant.is_limited:
        (refusal,) = await check_drafts(grant, api.parts.control, [draft])
        if refusal is not None:
            raise refusal
    receipt = await api.parts.intake.schedule_one(draft)
    api.audit.count(grant, "schedule", draft.route)
    return receipt


@get("/v1/messages", opt=LIMITED)
async def list_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    given = query(request, _LIST)
    cursor, limit = given.pop("cursor", None), page_limit(given.pop("limit", None), PAGE, MAX_PAGE)
    state = given.pop("state", None)
    if state is not None and state not in _STATES:
        raise InvalidMessage("state", f"must be one of {', '.join(_STATES)}")
    where = FilterIn(state=None if state is None else _STATES[state], **given).as_filter("")
    where = request.auth.narrowed(where, "")
    after = None if cursor is None else decode_cursor(cursor)
    page = await api.parts.control.search(where, after, limit)
    following = None if page.next is None else encode_cursor(page.next)
    short: Literal["work", "size"] | msgspec.UnsetType = msgspec.UNSET
    if following is not None and len(page.items) < limit:
        short = "work" if page.cut else "size"
    return json_answer(PageOut([message_out(item) for item in page.items], following, short))


@get("/v1/messages/{message_id:str}", opt=LIMITED)
async def get_message(request: HttpRequest, message_id: FromPath[str], api: TheApi) -> ASGIResponse:
    message, timeline = await api.parts.control.get(path_id(message_id))
    request.auth.check_route(message.route)
    return json_answer(message_out(message, timeline), 200, _etag(message))


@patch("/v1/messages/{message_id:str}", opt=LIMITED)
async def change_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    version = version_wanted(request)
    wanted = decode_patch(await read_body(request, api, PATCH_TYPES))
    if wanted.labels is not None:
        request.auth.check_labels(wanted.labels)
    await check_change(request.auth, api.parts.control, known)
    amendment = api.parts.intake.change(known, wanted, version)
    changed = await api.parts.control.reschedule(amendment)
    return _changed(request, api, "change", changed)


@delete("/v1/messages/{message_id:str}", status_code=200, opt=LIMITED)
async def cancel_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known, version = path_id(message_id), version_wanted(request)
    control, state = api.parts.control, query(request, _STATE).get("state")
    if state not in (None, State.SCHEDULED, State.DEAD):
        raise InvalidMessage("state", "must be scheduled (only cancel) or dead (only delete)")
    await check_change(request.auth, control, known)
    if state == State.SCHEDULED:
        return _changed(request, api, "cancel", await control.cancel(known, version))
    if state == State.DEAD:
        message, deleted = await control.delete(known, version), True
    else:
        message, deleted = await control.remove(known, version)
    if not deleted:
        return _changed(request, api, "cancel", message)
    api.audit.record(request.auth, "delete", known)
    return json_answer(msgspec.structs.replace(message_out(message), deleted=True))


@post("/v1/messages/{message_id:str}/release", status_code=200, opt=LIMITED)
async def release_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    version = version_wanted(request)
    await check_change(request.auth, api.parts.control, known)
    return _changed(request, api, "release", await api.parts.control.release(known, version))


@post("/v1/messages/{message_id:str}/redrive", status_code=200, opt=LIMITED)
async def redrive_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    version = version_wanted(request)
    await check_change(request.auth, api.parts.control, known)
    return _changed(request, api, "redrive", await api.parts.control.redrive(known, version))


def _changed(request: HttpRequest, api: Api, verb: str, message: Message) -> ASGIResponse:
    api.audit.record(request.auth, verb, message.id)
    return json_answer(message_out(message), 200, _etag(message))


def _etag(message: Message) -> tuple[str, str]:
    return "etag", f'"{message.version}"'
