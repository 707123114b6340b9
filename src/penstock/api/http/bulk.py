"""Changes to everything that matches a filter; `dry_run` only counts."""

from __future__ import annotations

from penstock.api.audit import filter_text
from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.context import SMALL_BODY
from penstock.api.http.request import Request
from penstock.api.http.shapes import BulkIn, MoveIn, decode_bulk, decode_move
from penstock.model.errors import InvalidMessage


async def change_matching(request: Request) -> Answer:
    """Every verb that takes a filter: the table names the method of Control that does it."""
    api, verb, grant = request.api, request.verb, request.grant
    body = await request.body(most=SMALL_BODY)
    more: dict[str, float | int | None] = {}
    wanted = decode_move(body) if verb.body == "Move" else decode_bulk(body)
    if verb.flow == "delete_where" and isinstance(wanted, BulkIn) and wanted.rate is not None:
        raise InvalidMessage("rate", "is for a redrive")
    where = grant.narrowed(wanted.filter.as_filter())
    if isinstance(wanted, MoveIn):
        more["due"] = api.parts.intake.due(wanted.at, wanted.delay)
    elif verb.flow == "redrive_where":
        more["rate"] = wanted.per_second()
    change = getattr(api.parts.control, verb.flow)
    result = await change(where, dry_run=wanted.dry_run, only=grant.covers, **more)
    if not wanted.dry_run:
        api.audit.record(grant, verb.word, filter_text(where), result.done)
    return json_answer(result)
