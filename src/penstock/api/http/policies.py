"""`/v1/policies`, `/v1/suppressions`, `/v1/decisions`, `/v1/counters`: what may go out, and why."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from litestar import delete, get, post, put
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.context import Api, TheApi, path_id, read_body
from penstock.flow.policies import Policies
from penstock.model.errors import UnknownMessage, UnknownThing
from penstock.model.identity import is_key
from penstock.model.policy import decode_policy, decode_suppression
from penstock.model.policy_view import (
    CountersOut,
    DecisionOut,
    Dropped,
    Listed,
    counter_out,
    decision_out,
    decode_questions,
    policy_out,
    suppression_out,
)

_ADMIN = {"scope": Scope.ADMIN}


@get("/v1/policies")
async def list_policies(api: TheApi) -> ASGIResponse:
    book = await _policies(api).refresh()
    items = [policy_out(policy_id, policy) for policy_id, policy in book.policies.items()]
    return json_answer(Listed(items, book.version))


@get("/v1/policies/{policy:str}")
async def get_policy(policy: FromPath[str], api: TheApi) -> ASGIResponse:
    policy_id = _name(policy)
    return json_answer(policy_out(policy_id, await _policies(api).get(policy_id)))


@put("/v1/policies/{policy:str}", status_code=200, opt=_ADMIN)
async def put_policy(policy: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    policy_id = _name(policy)
    written = decode_policy(await read_body(request, api))
    await _policies(api).put({policy_id: written})
    api.audit.record(request.auth, "put", f"policy {policy_id}")
    return json_answer(policy_out(policy_id, written))


@delete("/v1/policies/{policy:str}", status_code=200, opt=_ADMIN)
async def drop_policy(policy: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    policy_id = _name(policy)
    await _policies(api).drop(policy_id)
    api.audit.record(request.auth, "delete", f"policy {policy_id}")
    return json_answer(Dropped(policy_id))


@get("/v1/suppressions")
async def list_suppressions(api: TheApi) -> ASGIResponse:
    """The lists without their keys, which may be many."""
    book = await _policies(api).refresh()
    items = [suppression_out(name, found, keys=False) for name, found in book.suppressions.items()]
    return json_answer(Listed(items, book.version))


@get("/v1/suppressions/{suppression:str}")
async def get_suppression(suppression: FromPath[str], api: TheApi) -> ASGIResponse:
    list_id = _name(suppression)
    return json_answer(suppression_out(list_id, await _policies(api).suppression(list_id)))


@put("/v1/suppressions/{suppression:str}", status_code=200, opt=_ADMIN)
async def put_suppression(
    suppression: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    list_id = _name(suppression)
    written = decode_suppression(await read_body(request, api))
    await _policies(api).put_suppression(list_id, written)
    api.audit.record(request.auth, "put", f"suppression {list_id}", len(written.keys))
    return json_answer(suppression_out(list_id, written))


@delete("/v1/suppressions/{suppression:str}", status_code=200, opt=_ADMIN)
async def drop_suppression(
    suppression: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    list_id = _name(suppression)
    await _policies(api).drop_suppression(list_id)
    api.audit.record(request.auth, "delete", f"suppression {list_id}")
    return json_answer(Dropped(list_id))


@put("/v1/suppressions/{suppression:str}/keys/{key:str}", status_code=200, opt=_ADMIN)
async def suppress_key(
    suppression: FromPath[str], key: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    list_id = _name(suppression)
    await _policies(api).suppress(list_id, add=[_key(key)])
    api.audit.record(request.auth, "add", f"suppression {list_id}")
    return json_answer(Dropped(list_id))


@delete("/v1/suppressions/{suppression:str}/keys/{key:str}", status_code=200, opt=_ADMIN)
async def unsuppress_key(
    suppression: FromPath[str], key: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    list_id = _name(suppression)
    await _policies(api).suppress(list_id, remove=[_key(key)])
    api.audit.record(request.auth, "remove", f"suppression {list_id}")
    return json_answer(Dropped(list_id))


@post("/v1/decisions", status_code=200, opt={"scope": Scope.READ})
async def explain(request: HttpRequest, api: TheApi) -> ASGIResponse:
    """Decide without sending or counting: one message, or an array of them."""
    policies = _policies(api)
    now = api.parts.store.clock.now()
    questions, many = decode_questions(await read_body(request, api), now)
    answers: list[DecisionOut] = []
    for question, decision in zip(questions, await policies.explain(questions), strict=True):
        counters = await policies.counters(question.key)
        answers.append(decision_out(decision, counters))
    return json_answer(answers if many else answers[0])


@get("/v1/counters/{key:str}")
async def counters(key: FromPath[str], api: TheApi) -> ASGIResponse:
    wanted = _key(key)
    found = await _policies(api).counters(wanted)
    return json_answer(CountersOut(wanted, [counter_out(figure) for figure in found]))


def _policies(api: Api) -> Policies:
    if api.parts.policies is None:
        raise UnknownThing(f"the store {api.parts.store.name} keeps no policies")
    return api.parts.policies


def _name(raw: str) -> str:
    try:
        return path_id(raw)
    except UnknownMessage as exc:
        raise UnknownThing("no such policy or list", field="id") from exc


def _key(raw: str) -> str:
    """One raw path segment, percent-decoded exactly once → a key of any script."""
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as exc:
        raise UnknownThing("the key in the path is not UTF-8", field="key") from exc
    if not is_key(text):
        raise UnknownThing("no such key", field="key")
    return text
