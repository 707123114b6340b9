"""`/v1/messages`: put, look up, list, change, cancel, release."""

from __future__ import annotations

import msgspec
from litestar import delete, get, patch, post
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, json_answer, respond
from penstock.api.http.auth import PATCH_TYPES
from penstock.api.http.context import (
    TheApi,
    page_limit,
    path_id,
    query,
    read_body,
    traceparent,
    version_wanted,
)
from penstock.api.http.shapes import FilterIn
from penstock.model.draft import decode_draft
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
_STATES = {state.value: state for state in State}
_encode = msgspec.json.Encoder().encode


def receipt_answer(receipt: Receipt) -> Answer:
    """201 for a new message, 200 for an id seen before."""
    return Answer(200 if receipt.duplicate else 201, _encode(accepted(receipt)))


@post("/v1/messages")
async def create_message(request: HttpRequest, api: TheApi) -> ASGIResponse:
    body = await read_body(request, api)
    api.check_load()
    api.in_flight += 1
    try:
        draft = decode_draft(body)
        give_trace(draft, traceparent(request))
        receipt = await api.parts.intake.schedule_one(draft)
    finally:
        api.in_flight -= 1
    return respond(receipt_answer(receipt))


@get("/v1/messages")
async def list_messages(request: HttpRequest, api: TheApi) -> ASGIResponse:
    given = query(request, _LIST)
    cursor, limit = given.pop("cursor", None), page_limit(given.pop("limit", None), PAGE, MAX_PAGE)
    state = given.pop("state", None)
    if state is not None and state not in _STATES:
        raise InvalidMessage("state", f"must be one of {', '.join(_STATES)}")
    where = FilterIn(state=None if state is None else _STATES[state], **given).as_filter("")
    after = None if cursor is None else decode_cursor(cursor)
    page = await api.parts.control.search(where, after, limit)
    following = None if page.next is None else encode_cursor(page.next)
    return json_answer(PageOut([message_out(item) for item in page.items], following))


@get("/v1/messages/{message_id:str}")
async def get_message(message_id: FromPath[str], api: TheApi) -> ASGIResponse:
    message, timeline = await api.parts.control.get(path_id(message_id))
    return json_answer(message_out(message, timeline), 200, _etag(message))


@patch("/v1/messages/{message_id:str}")
async def change_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    version = version_wanted(request)
    wanted = decode_patch(await read_body(request, api, PATCH_TYPES))
    amendment = api.parts.intake.change(known, wanted, version)
    return _changed(await api.parts.control.reschedule(amendment))


@delete("/v1/messages/{message_id:str}", status_code=200)
async def cancel_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    return _changed(await api.parts.control.cancel(known, version_wanted(request)))


@post("/v1/messages/{message_id:str}/release", status_code=200)
async def release_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    return _changed(await api.parts.control.release(known, version_wanted(request)))


@post("/v1/messages/{message_id:str}/redrive", status_code=200)
async def redrive_message(
    request: HttpRequest, message_id: FromPath[str], api: TheApi
) -> ASGIResponse:
    known = path_id(message_id)
    return _changed(await api.parts.control.redrive(known, version_wanted(request)))


def _changed(message: Message) -> ASGIResponse:
    return json_answer(message_out(message), 200, _etag(message))


def _etag(message: Message) -> tuple[str, str]:
    return "etag", f'"{message.version}"'
