"""Decision batches in front of any sink."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.contrib.sender.packed import PackedSink
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome


class Inner:
    """Takes what it is given and answers as told."""

    name = "inner://"
    concurrency = 10

    def __init__(self, *, max_batch: int = 500, refuse: str | None = None) -> None:
        self.max_batch = max_batch
        self.got: list[Message] = []
        self.closed = False
        self.answer: SendOutcome = DELIVERED
        self._refuse = refuse

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        assert len(batch) <= self.max_batch
        self.got += batch
        return [self._judge(message) for message in batch]

    def _judge(self, message: Message) -> SendOutcome:
        if self._refuse is not None and f'"{self._refuse}"'.encode() in message.payload:
            return Dead("refused")
        return self.answer

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        self.closed = True


def item(name: str, *, payload: bytes | None = None, **more: object) -> Message:
    body = payload if payload is not None else json.dumps({"id": name, "name": "n"}).encode()
    fields = {"route": "push", "key": name, "due": 5_000, "attempt": 1} | more
    return Message(id=name, payload=body, **fields)  # type: ignore[arg-type] # by name


def items_of(message: Message) -> list[str]:
    return [one["id"] for one in json.loads(message.payload)["notify_msg"]]


async def test_what_is_due_together_goes_out_as_one_batch_with_the_payloads_as_they_are() -> None:
    inner = Inner()
    odd = b'{"id": "b",  "data":{"x": 1.0}}'
    outcomes = await PackedSink(inner).send([item("a", due=5_999), item("b", payload=odd)])
    assert outcomes == [DELIVERED, DELIVERED]
    (batch,) = inner.got
    assert batch.payload == (
        b'{"decision":"ALLOW","tta":5,"notify_msg":[{"id": "a", "name": "n"},' + odd + b"]}"
    )
    assert (batch.route, batch.due, batch.attempt) == ("push", 5_000, 1)


async def test_an_item_without_an_id_gets_its_messages() -> None:
    inner = Inner()
    none = [item("m1", payload=b'{"name":"x"}'), item("m2", payload=b'{"id":null,"name":"y"}')]
    await PackedSink(inner).send(none)
    assert items_of(inner.got[0]) == ["m1", "m2"]


def wrapped(name: str, tta: int, *items: bytes) -> Message:
    body = b'{"decision":"ALLOW","tta":%d,"notify_msg":[%s]}' % (tta, b",".join(items))
    return item(name, payload=body)


async def test_batches_are_opened_and_their_items_join_those_of_the_same_moment() -> None:
    inner = Inner()
    given = [
        wrapped("a", 9, b'{"id":"a"}'),
        wrapped("b", 7, b'{"id":"b"}'),
        wrapped("c", 9, b'{"id":"c"}', b'{"name":"x"}'),
    ]
    outcomes = await PackedSink(inner).send(given)
    assert outcomes == [DELIVERED] * 3
    assert [(json.loads(batch.payload)["tta"], items_of(batch)) for batch in inner.got] == [
        (9, ["a", "c", "c:1"]),
        (7, ["b"]),
    ]


async def test_a_batch_takes_a_thousand_items_and_no_more() -> None:
    inner = Inner()
    given = [wrapped(f"m{n}", 9, *[b'{"id":"x"}'] * 400) for n in range(3)]
    await PackedSink(inner).send([*given, wrapped("none", 9)])
    assert [len(items_of(batch)) for batch in inner.got] == [800, 400]


async def test_a_payload_that_is_no_object_is_dead_and_alone() -> None:
    inner = Inner()
    bad = item("bad", payload=b"[1,2]"), item("worse", payload=b'{"id":"\xff')
    outcomes = await PackedSink(inner).send([item("a"), *bad, item("b")])
    assert [type(outcome) for outcome in outcomes] == [type(DELIVERED), Dead, Dead, type(DELIVERED)]
    assert items_of(inner.got[0]) == ["a", "b"]


async def test_a_batch_that_is_refused_is_halved_until_only_the_guilty_is_dead() -> None:
    inner = Inner(refuse="m5")
    outcomes = await PackedSink(inner).send([item(f"m{n}") for n in range(10)])
    dead = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Dead)]
    assert dead == [5]
    assert len(inner.got) < 10


async def test_all_of_a_batch_are_retried_together() -> None:
    inner = Inner()
    inner.answer = Retry("away", after=3.0)
    outcomes = await PackedSink(inner).send([item("a"), item("b")])
    assert outcomes == [inner.answer, inner.answer]


async def test_batches_are_bounded_by_bytes_and_by_what_the_sink_takes() -> None:
    inner = Inner(max_batch=2)
    wide = [item(f"m{n}", payload=b'{"id":"m%d","x":"%s"}' % (n, b"x" * 100)) for n in range(9)]
    outcomes = await PackedSink(inner, max_bytes=300).send(wide)
    assert outcomes == [DELIVERED] * 9
    assert [len(items_of(batch)) for batch in inner.got] == [2, 2, 2, 2, 1]


async def test_destinations_are_not_mixed() -> None:
    inner = Inner()
    await PackedSink(inner).send([item("a", topic="x"), item("b"), item("c", topic="x")])
    assert [(batch.topic, items_of(batch)) for batch in inner.got] == [
        ("x", ["a", "c"]),
        (None, ["b"]),
    ]


async def test_the_same_messages_make_the_same_id_and_others_another() -> None:
    inner = Inner()
    sink = PackedSink(inner)
    await sink.send([item("a"), item("b")])
    await sink.send([item("a", attempt=2), item("b", attempt=2)])
    await sink.send([item("a"), item("c")])
    ids = [batch.id for batch in inner.got]
    assert ids[0] == ids[1] != ids[2]
    assert inner.got[1].attempt == 2


async def test_it_closes_the_sink_behind_it() -> None:
    inner = Inner()
    sink = PackedSink(inner)
    await sink.check()
    await sink.close()
    assert (inner.closed, sink.name) == (True, "inner://")


async def test_further_fields_of_a_batch_are_kept_and_keep_batches_apart() -> None:
    inner = Inner()
    body = b'{"decision":"DEFER","tta":9,"process":"a","order":%d,"notify_msg":[{"id":"%s"}]}'
    given = [
        item(name, payload=body % (order, name.encode()))
        for name, order in zip("xyz", (1, 2, 1), strict=True)
    ]
    await PackedSink(inner).send([*given, wrapped("p", 9, b'{"id":"p"}')])
    got = {one: json.loads(message.payload) for message in inner.got for one in items_of(message)}
    assert [sorted(items_of(message)) for message in inner.got] == [["x", "z"], ["y"], ["p"]]
    assert (got["x"]["process"], got["x"]["order"], got["y"]["order"]) == ("a", 1, 2)
    assert set(got["p"]) == {"decision", "tta", "notify_msg"}
    assert {one["decision"] for one in got.values()} == {"ALLOW"}
