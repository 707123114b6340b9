"""`/v1/messages`: put, look up, list, change, cancel, release.

Handlers; which verb each serves is in `penstock.api.verbs`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.api.grants import Grant, check_change, check_drafts
from penstock.api.http.answer import Answer, json_answer, receipt_answer
from penstock.api.http.auth import PATCH_TYPES
from penstock.api.http.context import Api
from penstock.api.http.request import Request, page_limit
from penstock.api.http.shapes import FilterIn
from penstock.model.draft import Draft, decode_draft
from penstock.model.errors import InvalidMessage
from penstock.model.message import Message
from penstock.model.outcome import Receipt
from penstock.model.patch import decode_patch
from penstock.model.query import decode_cursor, encode_cursor
from penstock.model.state import State
from penstock.model.trace import give_trace
from penstock.model.view import PageOut, message_out

PAGE = 100
MAX_PAGE = 1_000
_STATES = {state.value: state for state in State}


async def create_message(request: Request) -> Answer:
    api = request.api
    body = await request.body()
    api.check_load()
    api.in_flight += 1
    try:
        draft = decode_draft(body)
        give_trace(draft, request.text("traceparent"))
        receipt = await put_as(request.grant, api, draft)
    finally:
        api.in_flight -= 1
    return receipt_answer(receipt)


async def put_as(grant: Grant, api: Api, draft: Draft) -> Receipt:
    """Put one message for the holder of a token, and count it for the audit."""
    if grant.is_limited:
        (refusal,) = await check_drafts(grant, api.parts.control, [draft])
        if refusal is not None:
            raise refusal
    receipt = await api.parts.intake.schedule_one(draft)
    api.audit.count(grant, "schedule", draft.route)
    return receipt


async def list_messages(request: Request) -> Answer:
    query = request.query()
    cursor, limit = query.pop("cursor", None), page_limit(query.pop("limit", None), PAGE, MAX_PAGE)
    state = query.pop("state", None)
    if state is not None and state not in _STATES:
        raise InvalidMessage("state", f"must be one of {', '.join(_STATES)}")
    where = FilterIn(state=None if state is None else _STATES[state], **query).as_filter("")
    where = request.grant.narrowed(where, "")
    after = None if cursor is None else decode_cursor(cursor)
    page = await request.api.parts.control.search(where, after, limit)
    following = None if page.next is None else encode_cursor(page.next)
    short: Literal["work", "size"] | msgspec.UnsetType = msgspec.UNSET
    if following is not None and len(page.items) < limit:
        short = "work" if page.cut else "size"
    return json_answer(PageOut([message_out(item) for item in page.items], following, short))


async def get_message(request: Request) -> Answer:
    message, timeline = await request.api.parts.control.get(request.arg("id"))
    request.grant.check_route(message.route)
    return json_answer(message_out(message, timeline), 200, _etag(message))


async def change_message(request: Request) -> Answer:
    parts, message_id, version = request.api.parts, request.arg("id"), request.version
    wanted = decode_patch(await request.body(PATCH_TYPES))
    if wanted.labels is not None:
        request.grant.check_labels(wanted.labels)
    await check_change(request.grant, parts.control, message_id)
    amendment = parts.intake.change(message_id, wanted, version)
    return _changed(request, "change", await parts.control.reschedule(amendment))


async def cancel_message(request: Request) -> Answer:
    message_id, version = request.arg("id"), request.version
    control, state = request.api.parts.control, request.query().get("state")
    if state not in (None, State.SCHEDULED, State.DEAD):
        raise InvalidMessage("state", "must be scheduled (only cancel) or dead (only delete)")
    await check_change(request.grant, control, message_id)
    if state == State.SCHEDULED:
        return _changed(request, "cancel", await control.cancel(message_id, version))
    if state == State.DEAD:
        message, deleted = await control.delete(message_id, version), True
    else:
        message, deleted = await control.remove(message_id, version)
    if not deleted:
        return _changed(request, "cancel", message)
    request.api.audit.record(request.grant, "delete", message_id)
    return json_answer(msgspec.structs.replace(message_out(message), deleted=True))


async def change_stored(request: Request) -> Answer:
    """Change one stored message: the table names the method of Control to call."""
    message_id, version, control = request.arg("id"), request.version, request.api.parts.control
    await check_change(request.grant, control, message_id)
    changed = await getattr(control, request.verb.flow)(message_id, version)
    return _changed(request, request.verb.word, changed)


def _changed(request: Request, word: str, message: Message) -> Answer:
    request.api.audit.record(request.grant, word, message.id)
    return json_answer(message_out(message), 200, _etag(message))


def _etag(message: Message) -> tuple[str, str]:
    return "etag", f'"{message.version}"'
