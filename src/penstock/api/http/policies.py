"""`/v1/policies`, `/v1/suppressions`, `/v1/decisions`, `/v1/counters`: the rules and decisions.

Handlers; the verb of each is in `penstock.api.verbs`.
"""

from __future__ import annotations

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.context import Api
from penstock.api.http.request import Request
from penstock.flow.policies import Policies
from penstock.model.errors import UnknownThing
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


async def list_policies(request: Request) -> Answer:
    book = await _policies(request.api).refresh()
    items = [policy_out(policy_id, policy) for policy_id, policy in book.policies.items()]
    return json_answer(Listed(items, book.version))


async def get_policy(request: Request) -> Answer:
    policy_id = request.arg("policy")
    return json_answer(policy_out(policy_id, await _policies(request.api).get(policy_id)))


async def put_policy(request: Request) -> Answer:
    policy_id = request.arg("policy")
    written = decode_policy(await request.body())
    await _policies(request.api).put({policy_id: written})
    request.api.audit.record(request.grant, "put", f"policy {policy_id}")
    return json_answer(policy_out(policy_id, written))


async def drop_policy(request: Request) -> Answer:
    policy_id = request.arg("policy")
    await _policies(request.api).drop(policy_id)
    request.api.audit.record(request.grant, "delete", f"policy {policy_id}")
    return json_answer(Dropped(policy_id))


async def list_suppressions(request: Request) -> Answer:
    """The lists without their keys, which may be many."""
    book = await _policies(request.api).refresh()
    items = [suppression_out(name, found, keys=False) for name, found in book.suppressions.items()]
    return json_answer(Listed(items, book.version))


async def get_suppression(request: Request) -> Answer:
    list_id = request.arg("suppression")
    return json_answer(suppression_out(list_id, await _policies(request.api).suppression(list_id)))


async def put_suppression(request: Request) -> Answer:
    list_id = request.arg("suppression")
    written = decode_suppression(await request.body())
    await _policies(request.api).put_suppression(list_id, written)
    keys = len(written.keys)
    request.api.audit.record(request.grant, "put", f"suppression {list_id}", keys)
    return json_answer(suppression_out(list_id, written))


async def drop_suppression(request: Request) -> Answer:
    list_id = request.arg("suppression")
    await _policies(request.api).drop_suppression(list_id)
    request.api.audit.record(request.grant, "delete", f"suppression {list_id}")
    return json_answer(Dropped(list_id))


async def change_key(request: Request) -> Answer:
    """Put one key on a list, or take it off."""
    list_id, adds = request.arg("suppression"), request.verb.method == "PUT"
    policies, key = _policies(request.api), [request.arg("key")]
    await policies.suppress(list_id, add=key if adds else (), remove=() if adds else key)
    word = "add" if adds else "remove"
    request.api.audit.record(request.grant, word, f"suppression {list_id}")
    return json_answer(Dropped(list_id))


async def explain(request: Request) -> Answer:
    """Decide without sending or counting: one message, or an array of them."""
    policies = _policies(request.api)
    now = request.api.parts.store.clock.now()
    questions, many = decode_questions(await request.body(), now)
    answers: list[DecisionOut] = []
    for question, decision in zip(questions, await policies.explain(questions), strict=True):
        counters = await policies.counters(question.key)
        answers.append(decision_out(decision, counters))
    return json_answer(answers if many else answers[0])


async def counters(request: Request) -> Answer:
    wanted = request.arg("key")
    found = await _policies(request.api).counters(wanted)
    return json_answer(CountersOut(wanted, [counter_out(figure) for figure in found]))


def _policies(api: Api) -> Policies:
    if api.parts.policies is None:
        raise UnknownThing(f"the store {api.parts.store.name} keeps no policies")
    return api.parts.policies
