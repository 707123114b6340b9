"""Decisions on their way out: what is kept tells its sender's verdict, what leaves is allowed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

from penstock.contrib.sender.allowed import AllowedSink
from penstock.contrib.sender.decision_batch import DECISION_BATCH
from penstock.model.draft import Draft
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, SendOutcome
from penstock.settings import given
from penstock.wiring import open_parts, open_worker


class Inner:
    name = "inner://"
    max_batch = 7
    concurrency = 9

    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        self.got += [message.payload for message in batch]
        return [DELIVERED] * len(batch)

    async def check(self) -> None: ...

    async def close(self) -> None: ...


def message(payload: bytes) -> Message:
    return Message(id="a", route="push", key="a", payload=payload, due=1, attempt=1)


@pytest.mark.parametrize("verdict", ["DEFER", "ALLOW", None])
async def test_a_decision_that_leaves_is_allowed_and_otherwise_as_it_came(
    verdict: str | None,
) -> None:
    body = {"decision": verdict, "tta": 5, "notify_msg": [{"id": "a", "decision": "DEFER"}]}
    (draft,) = DECISION_BATCH.read(json.dumps(body).encode(), None, 10_000)
    inner = Inner()
    assert isinstance(draft, Draft)
    assert isinstance(draft.payload, msgspec.Raw)
    kept = bytes(draft.payload)
    assert json.loads(kept)["decision"] == verdict
    assert await AllowedSink(inner).send([message(kept)]) == [DELIVERED]
    assert json.loads(inner.got[0]) == {**body, "decision": "ALLOW"}


async def test_other_payloads_go_as_they_are() -> None:
    inner = Inner()
    others = [b'{"decision": "DEFER"}', b"", b"[]", b'{"decision":"BLOCK","notify_msg":[]}']
    await AllowedSink(inner).send([message(body) for body in others])
    assert inner.got == others


async def test_the_sink_behind_says_how_much_it_takes() -> None:
    sink = AllowedSink(Inner())
    assert (sink.name, sink.max_batch, sink.concurrency) == ("inner://", 7, 9)


async def test_a_route_that_decisions_are_sent_to_one_by_one_has_it_and_no_other() -> None:
    source = {"from": "nats://127.0.0.1:1/in", "format": "decision-batch"}
    settings = given(
        store="sqlite:///:memory:",
        routes={"one": {}, "packed": {"format": "decision-batch"}, "other": {}},
        sources={"a": {**source, "route": "one"}, "b": {**source, "route": "packed"}},
    )
    async with open_parts(settings) as parts, open_worker(parts) as worker:
        kinds = {name: type(lane.sink).__name__ for name, lane in worker.lanes.items()}
    plain = "LogSink"
    assert kinds == {"default": plain, "one": "AllowedSink", "packed": "PackedSink", "other": plain}
