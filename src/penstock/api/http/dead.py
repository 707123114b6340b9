"""`/v1/dead/groups`: dead letters by error. `/v1/forget`: erase every message of a key."""

from __future__ import annotations

import hashlib

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.context import SMALL_BODY
from penstock.api.http.request import Request
from penstock.api.http.shapes import decode_forget
from penstock.model.errors import InvalidMessage
from penstock.model.query import Filter


async def group_dead(request: Request) -> Answer:
    where = request.grant.narrowed(Filter(route=request.query().get("route")), "")
    return json_answer(await request.api.status.dead_groups(where.route))


async def forget_key(request: Request) -> Answer:
    wanted = decode_forget(await request.body(most=SMALL_BODY))
    if not wanted.key:
        raise InvalidMessage("key", "must be given")
    erased = await request.api.parts.erase.erase(wanted.key, wanted.cursor)
    # The log outlives the erasure: it distinguishes keys without naming them.
    digest = hashlib.sha256(wanted.key.encode()).hexdigest()[:12]
    request.api.audit.record(request.grant, "forget", f"key sha256:{digest}", erased.messages)
    return json_answer(erased)
