"""`/v1/recurring`: rules that plant messages, moment after moment."""

from __future__ import annotations

import msgspec

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.context import SMALL_BODY, Api
from penstock.api.http.request import Request, page_limit, path_text
from penstock.flow.recurring import Recurring
from penstock.model.errors import UnknownThing
from penstock.model.recurrence import Rule, decode_rule
from penstock.model.recurrence_view import (
    Backfilled,
    BackfillIn,
    RuleDeleted,
    Triggered,
    decode_backfill,
)
from penstock.model.wire import read_json

PAGE = 100
MAX_PAGE = 1_000


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a call that takes none."""


_nothing = msgspec.json.Decoder(Nothing)


async def list_rules(request: Request) -> Answer:
    wanted = request.query()
    limit = page_limit(wanted.get("limit"), PAGE, MAX_PAGE)
    return json_answer(await _rules(request.api).list(wanted.get("cursor"), limit))


async def get_rule(request: Request) -> Answer:
    shown = await _rules(request.api).get(request.arg("rule"))
    return json_answer(shown, 200, _etag(shown.version))


async def put_rule(request: Request) -> Answer:
    """201 for a new rule, 200 for one that was there, changed or not."""
    rule_id = path_text(request.raw("rule"))  # one that cannot be a rule's is refused as invalid
    rule = await _rule_in(request)
    put, made = await _rules(request.api).put(rule_id, rule, version=request.version)
    request.api.audit.record(request.grant, "put", f"recurring {rule_id}")
    return json_answer(put, 201 if made else 200, _etag(put.version))


async def delete_rule(request: Request) -> Answer:
    rule_id = request.arg("rule")
    await _rules(request.api).delete(rule_id, request.version)
    request.api.audit.record(request.grant, "delete", f"recurring {rule_id}")
    return json_answer(RuleDeleted(rule_id))


async def set_paused(request: Request) -> Answer:
    """`pause` and `resume`."""
    rule_id, word = request.arg("rule"), request.verb.word
    await _no_fields(request)
    shown = await _rules(request.api).pause(rule_id, word == "pause", request.version)
    request.api.audit.record(request.grant, word, f"recurring {rule_id}")
    return json_answer(shown, 200, _etag(shown.version))


async def trigger_rule(request: Request) -> Answer:
    rule_id = request.arg("rule")
    await _no_fields(request)
    name = await _rules(request.api).trigger(rule_id)
    request.api.audit.record(request.grant, "trigger", f"recurring {rule_id}")
    return json_answer(Triggered(name))


async def backfill_rule(request: Request) -> Answer:
    rule_id = request.arg("rule")
    wanted: BackfillIn = decode_backfill(await request.body(most=SMALL_BODY))
    planted = await _rules(request.api).backfill(rule_id, wanted.from_, wanted.to)
    request.api.audit.record(request.grant, "backfill", f"recurring {rule_id}", planted)
    return json_answer(Backfilled(planted))


async def preview_rule(request: Request) -> Answer:
    return json_answer(_rules(request.api).preview(await _rule_in(request)))


def _etag(version: int) -> tuple[str, str]:
    return "etag", f'"{version}"'


async def _no_fields(request: Request) -> None:
    """Refuse a body with fields, which would change nothing: it must be empty, or {}."""
    if request.has_body and (body := await request.body(most=SMALL_BODY, untyped=True)):
        read_json(_nothing, body)


async def _rule_in(request: Request) -> Rule:
    limits = request.api.parts.settings.limits
    return decode_rule(await request.body(), max_payload=limits.max_payload)


def _rules(api: Api) -> Recurring:
    if api.parts.recurring is None:
        raise UnknownThing(f"the store {api.parts.store.name} keeps no recurring rules")
    return api.parts.recurring
