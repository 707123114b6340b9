"""Ingest: nothing is done before it is kept, and nothing stands in the way of the rest."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from penstock.flow import ingest
from penstock.flow.ingest import PLACE, REASON, RECORD, SOURCE, Ingest
from penstock.model.backoff import Backoff
from penstock.model.draft import OCTETS, is_id, is_key
from penstock.model.errors import SourceUnavailable, StoreCorrupt, StoreUnavailable, TooLarge
from penstock.model.fit import CUT
from penstock.model.headers import HEADERS
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import DELIVERED, Dead, Receipt, Retry, SendOutcome
from penstock.model.state import State
from penstock.ports.source import Record
from penstock.settings import given
from penstock.testing import poison
from penstock.wiring import Parts, open_parts
from penstock.wiring.contrib import format_named


class Broker:
    """A source in this process: what is not done comes again after a loss."""

    name = "broker"

    def __init__(self, *values: object) -> None:
        self.waiting = [_record(n, value) for n, value in enumerate(values)]
        self.acked: list[str | None] = []
        self.held = 0
        self.trouble: list[SourceUnavailable] = []
        self.idle = asyncio.Event()

    async def read(self, limit: int) -> Sequence[Record]:
        if self.trouble:
            raise self.trouble.pop()
        if not self.waiting:
            self.idle.set()
            await asyncio.sleep(0)
        got, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return got

    async def done(self, records: Sequence[Record]) -> None:
        self.acked += [record.origin for record in records]

    async def hold(self, records: Sequence[Record]) -> None:
        self.held += len(records)

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class DeadLetter:
    name = "dead"
    max_batch = 2
    concurrency = 10

    def __init__(self, *first: SendOutcome) -> None:
        self.first = list(first)
        self.kept: list[Message] = []

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        outcomes = [self.first.pop(0) if self.first else DELIVERED for _ in batch]
        self.kept += [m for m, o in zip(batch, outcomes, strict=True) if o == DELIVERED]
        return outcomes

    async def check(self) -> None: ...

    async def close(self) -> None: ...


def _record(number: int, value: object) -> Record:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(value=body, headers={"x-trace": "t"}, origin=f"q:{number}")


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    settings = given(store="sqlite:///:memory:", routes={"push": {}})
    async with open_parts(settings) as opened:
        yield opened


@asynccontextmanager
async def ingesting(
    parts: Parts, broker: Broker, dead: DeadLetter | None = None, form: str = "message"
) -> AsyncIterator[None]:
    reading = Ingest(
        "orders",
        broker,
        format_named(form).read,
        parts.intake,
        parts.store.clock,
        parts.observer,
        route="push",
        dead_letter=dead,
        alone=format_named(form).alone,
    )
    running = asyncio.ensure_future(reading.run())
    try:
        async with asyncio.timeout(300):
            await broker.idle.wait()
            yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def found(parts: Parts, *ids: str) -> list[Message | None]:
    return await parts.store.messages.find(ids)


async def test_records_become_messages_of_the_sources_route(parts: Parts) -> None:
    broker = Broker({"id": "a", "payload": 1}, {"payload": 2})
    async with ingesting(parts, broker):
        first, second = await found(parts, "a", "q:1:0")
        assert first is not None
        assert second is not None
        assert {first.route, second.route} == {"push"}
        assert broker.acked == ["q:0", "q:1"]


async def test_a_redelivery_changes_nothing(parts: Parts) -> None:
    broker = Broker({"payload": 1})
    broker.waiting *= 3
    async with ingesting(parts, broker):
        assert len(broker.acked) == 3
        assert (await parts.store.messages.figures(parts.store.clock.now())).routes[
            "push"
        ].scheduled == 1


async def test_poison_goes_to_the_dead_letter_with_the_reason_and_the_rest_goes_on(
    parts: Parts,
) -> None:
    dead = DeadLetter()
    broker = Broker({"id": "a"}, b"not json", {"id": "b", "nonsense": 1}, {"id": "c"})
    async with ingesting(parts, broker, dead):
        assert None not in await found(parts, "a", "c")
        assert [m.payload for m in dead.kept] == [b"not json", b'{"id": "b", "nonsense": 1}']
        reasons = [(m.headers or {})[REASON] for m in dead.kept]
        assert "not valid JSON" in reasons[0]
        assert "nonsense" in reasons[1]
        headers = dead.kept[0].headers or {}
        assert (headers[SOURCE], headers[RECORD], headers["x-trace"]) == ("orders", "q:1", "t")
        assert len(broker.acked) == 4


async def test_poison_is_not_done_until_the_dead_letter_has_it(parts: Parts) -> None:
    dead = DeadLetter(Retry("away"), Retry("away"))
    broker = Broker(b"not json")
    async with ingesting(parts, broker, dead):
        assert broker.held == 2
        assert [m.attempt for m in dead.kept] == [3]
        assert broker.acked == ["q:0"]


async def kept_dead(parts: Parts, message_id: str = "dead:q:0") -> Message:
    (message,) = await found(parts, message_id)
    assert message is not None
    assert (message.state, message.route, message.attempt) == (State.DEAD, "push", 0)
    return message


async def test_what_the_dead_letter_refuses_is_kept_as_a_dead_message(parts: Parts) -> None:
    broker = Broker(b"not json", {"id": "a"})
    async with ingesting(parts, broker, DeadLetter(Dead("too large"))):
        assert len(broker.acked) == 2
        assert (await kept_dead(parts)).payload == b"not json"


async def test_a_dead_letter_that_never_takes_a_letter_does_not_hold_its_source_for_ever(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "LETTER_TRIES", 3)
    broker = Broker(b"not json", {"id": "a"})
    dead = DeadLetter(*[Retry("406")] * 3)
    async with ingesting(parts, broker, dead):
        assert broker.acked == ["q:0", "q:1"]
        assert dead.kept == []
        assert "not valid JSON" in str((await kept_dead(parts)).last_error)


async def test_a_dead_letter_that_raises_for_one_letter_gets_the_others(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(DeadLetter):
        max_batch = 100

        async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
            if any(b"poison" in letter.payload for letter in batch):
                raise ValueError("a header that cannot be encoded")
            return await super().send(batch)

    monkeypatch.setattr(ingest, "LETTER_TRIES", 2)
    dead = Picky()
    broker = Broker(b"bad", b"poison", b"worse")
    async with ingesting(parts, broker, dead):
        assert [letter.payload for letter in dead.kept] == [b"bad", b"worse"]
        assert [letter.attempt for letter in dead.kept] == [1, 1]
        assert (await kept_dead(parts, "dead:q:1")).payload == b"poison"


async def test_without_a_dead_letter_poison_is_kept_as_a_dead_message(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(b"not json")
    async with ingesting(parts, broker):
        assert broker.acked == ["q:0"]
        assert "record q:0 rejected: not valid JSON" in caplog.text
        assert "it is kept as the dead message dead:q:0" in caplog.text
        message = await kept_dead(parts)
        assert message.payload == b"not json"
        assert "not valid JSON" in str(message.last_error)
        headers = message.headers or {}
        assert (headers[SOURCE], headers[RECORD], headers["x-trace"]) == ("orders", "q:0", "t")


async def test_a_record_that_is_too_large_is_kept_as_far_as_it_fits() -> None:
    settings = given(store="sqlite:///:memory:", routes={"push": {}}, limits={"max_payload": 1_000})
    async with open_parts(settings) as parts:
        broker = Broker({"id": "a", "payload": "x" * 5_000}, {"id": "b"})
        async with ingesting(parts, broker):
            message = await kept_dead(parts)
            assert message.payload == b'{"id": "a", "payload": "' + b"x" * (1_000 - 24)
            assert "1,000 of 5,026 bytes of the payload are kept" in str(message.last_error)
            assert (message.headers or {})[CUT] == "5026"
            assert None not in await found(parts, "b")


HOSTILE = {
    "CC": "['a', 'b']",
    "Nats-Rollup": "all",
    "content-type": "a" * 300,
    "host": "elsewhere",
    "penstock-id": "forged",
    "with blank": "x",
    "x-lines": "a\r\nb",
    "x-long": "v" * 5_000,
    "n" * 300: "x",
    "": "empty",
    "x-fine": "Zürich",
}


async def test_a_letter_carries_only_headers_that_every_sink_takes(parts: Parts) -> None:
    dead = DeadLetter()
    broker = Broker(b"not json")
    broker.waiting = [replace(broker.waiting[0], headers=HOSTILE, key="\x00", origin="ü" * 300)]
    async with ingesting(parts, broker, dead):
        (letter,) = dead.kept
        headers = dict(letter.headers or {})
        own = {SOURCE, REASON, RECORD, HEADERS}
        assert headers.keys() == own | {"x-fine"}
        others = json.loads(headers[HEADERS])
        assert (others["CC"], others["Nats-Rollup"]) == ("['a', 'b']", "all")
        assert others["x-lines"] == "a\r\nb"
        assert all(value.isprintable() and len(value) <= 4096 for value in headers.values())
        assert letter.content_type == OCTETS
        assert is_id(letter.id)
        assert is_key(letter.key)


async def test_many_hostile_headers_do_not_make_a_letter_large(parts: Parts) -> None:
    dead = DeadLetter()
    broker = Broker(b"not json")
    many = {f"x {n}": "v" * 1_000 for n in range(1_000)} | {f"x-{n}": "v" for n in range(200)}
    broker.waiting = [replace(broker.waiting[0], headers=many)]
    async with ingesting(parts, broker, dead):
        headers = dead.kept[0].headers or {}
        assert len(headers) < 64
        assert len(headers[HEADERS]) <= 4096
        assert json.loads(headers[HEADERS])["…"].endswith(" more")


class Poisoned:
    """Stands in front of a store's put and raises when it meets what it cannot take."""

    def __init__(self, parts: Parts, word: bytes, error: Exception) -> None:
        self._put = parts.store.messages.put
        self._word = word
        self._error = error
        self.calls = 0

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        self.calls += 1
        if any(self._word in message.payload for message in messages):
            raise self._error
        return await self._put(messages, now)


@pytest.mark.parametrize(
    "error", [StoreCorrupt("item"), TooLarge("item"), UnicodeError("text"), sqlite3.Error("odd")]
)
async def test_a_record_that_no_store_can_take_does_not_stop_its_source(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = Poisoned(parts, b"poison", error)
    monkeypatch.setattr(parts.store.messages, "put", store.put)
    monkeypatch.setattr(ingest, "AWAY", Backoff(1, 1))
    innocents = [{"id": f"m-{n}", "payload": n} for n in range(50)]
    broker = Broker(*innocents[:25], {"id": "p", "payload": "poison"}, *innocents[25:])
    async with ingesting(parts, broker):
        assert None not in await found(parts, *(f"m-{n}" for n in range(50)))
        assert await found(parts, "p") == [None]
        assert len(broker.acked) == 51
        message = await kept_dead(parts, "dead:q:25")
        assert "the record itself cannot be stored" in str(message.last_error)


async def test_a_store_that_goes_away_beside_a_poison_record_buries_no_innocent(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put of all fails because of one, and the puts of its parts because the store is away."""
    put, away = parts.store.messages.put, [StoreUnavailable("away")] * 40

    async def failing(messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        if any(b"poison" in message.payload for message in messages):
            raise sqlite3.Error("odd")
        if away:
            raise away.pop()
        return await put(messages, now)

    monkeypatch.setattr(parts.store.messages, "put", failing)
    monkeypatch.setattr(ingest, "AWAY", Backoff(1, 1))
    broker = Broker({"id": "a"}, {"id": "p", "payload": "poison"}, {"id": "b"}, {"id": "c"})
    async with ingesting(parts, broker):
        assert None not in await found(parts, "a", "b", "c")
        await kept_dead(parts, "dead:q:1")


async def test_a_fault_that_nobody_expects_does_not_end_the_worker(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ingest, "AWAY", Backoff(1, 1))
    broker = Broker({"id": "a"})
    faults: list[Exception] = [RuntimeError("a driver's own fault"), KeyError("another")]
    read = broker.read

    async def failing(limit: int) -> Sequence[Record]:
        if faults:
            raise faults.pop()
        return await read(limit)

    monkeypatch.setattr(broker, "read", failing)
    async with ingesting(parts, broker):
        assert None not in await found(parts, "a")
        assert "source orders failed and is tried again" in caplog.text


async def test_while_the_store_is_away_nothing_is_done_and_nothing_more_is_read(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, away = parts.store.messages.put, [StoreUnavailable("away")] * 3

    async def failing(messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        if away:
            assert broker.acked == []
            assert len(broker.waiting) == 0
            raise away.pop()
        return await put(messages, now)

    monkeypatch.setattr(parts.store.messages, "put", failing)
    broker = Broker({"id": "a"}, {"id": "b"})
    async with ingesting(parts, broker):
        assert None not in await found(parts, "a", "b")
        assert broker.held == 6
        assert broker.acked == ["q:0", "q:1"]


async def test_a_broker_that_is_away_is_asked_again(parts: Parts) -> None:
    broker = Broker({"id": "a"})
    broker.trouble = [SourceUnavailable("away"), SourceUnavailable("away")]
    async with ingesting(parts, broker):
        assert None not in await found(parts, "a")


async def test_a_blocked_batch_is_kept_as_blocked_with_its_reason(parts: Parts) -> None:
    broker = Broker({"decision": "BLOCK", "notify_msg": [{"id": "n1"}, {"id": "n2"}]})
    async with ingesting(parts, broker, form="decision-batch"):
        states = [(m.state, m.last_error) for m in await found(parts, "n1", "n2") if m]
        assert states == [(State.BLOCKED, "blocked by the sender's decision")] * 2


async def test_an_unknown_verdict_is_kept_for_inspection(parts: Parts) -> None:
    dead = DeadLetter()
    broker = Broker({"decision": "MAYBE", "notify_msg": [{"id": "n1"}]})
    async with ingesting(parts, broker, dead, form="decision-batch"):
        assert await found(parts, "n1") == [None]
        (letter,) = dead.kept
        assert "'MAYBE' is not ALLOW, DEFER, BLOCK" in (letter.headers or {})[REASON]


async def test_of_a_decision_batch_only_the_bad_items_are_dead_letters(parts: Parts) -> None:
    dead = DeadLetter()
    items = [{"id": "n1"}, {"id": "\n"}, {"id": "n2"}, 5, {"id": "n3"}]
    broker = Broker({"decision": "DEFER", "tta": 4e9, "notify_msg": items})
    async with ingesting(parts, broker, dead, form="decision-batch"):
        assert None not in await found(parts, "n1", "n2", "n3")
        assert [json.loads(letter.payload) for letter in dead.kept] == [
            {"decision": "DEFER", "tta": 4_000_000_000, "notify_msg": [{"id": "\n"}]},
            {"decision": "DEFER", "tta": 4_000_000_000, "notify_msg": [5]},
        ]
        headers = [letter.headers or {} for letter in dead.kept]
        assert [(one[RECORD], one[PLACE]) for one in headers] == [("q:0", "1"), ("q:0", "3")]
        assert "id: must be" in headers[0][REASON]
        assert "notify_msg[3]" in headers[1][REASON]
        assert [letter.id for letter in dead.kept] == ["dead:q:0:1", "dead:q:0:3"]
        assert broker.acked == ["q:0"]


async def test_of_an_array_only_the_bad_messages_are_dead_letters(parts: Parts) -> None:
    dead = DeadLetter()
    one = {"id": "x", "route": "nowhere"}
    broker = Broker([{"id": "a"}, one, {"id": "b"}, {"id": "y", "nonsense": 1}])
    async with ingesting(parts, broker, dead):
        assert None not in await found(parts, "a", "b")
        assert [json.loads(m.payload) for m in dead.kept] == [one, {"id": "y", "nonsense": 1}]
        assert [(m.headers or {})[PLACE] for m in dead.kept] == ["1", "3"]
        assert "nowhere" in (dead.kept[0].headers or {})[REASON]


async def test_a_record_that_is_one_message_is_a_dead_letter_as_it_came(parts: Parts) -> None:
    dead = DeadLetter()
    broker = Broker(b' {"id": "x",  "route": "nowhere"}', b'[{"id": "a"}, {"id": "b"')
    async with ingesting(parts, broker, dead):
        assert await found(parts, "a", "b") == [None, None]
        assert [m.payload for m in dead.kept] == [
            b' {"id": "x",  "route": "nowhere"}',
            b'[{"id": "a"}, {"id": "b"',
        ]
        assert all(PLACE not in (m.headers or {}) for m in dead.kept)


async def test_the_dead_letters_of_long_record_names_are_told_apart(parts: Parts) -> None:
    dead = DeadLetter()
    broker = Broker([5, 6])
    broker.waiting = [replace(broker.waiting[0], origin="m" * 200)]
    async with ingesting(parts, broker, dead):
        assert len({m.id for m in dead.kept}) == 2
        assert all(len(m.id) <= 200 for m in dead.kept)


async def test_more_messages_than_one_put_takes_are_all_kept(parts: Parts) -> None:
    batches = [
        {"decision": "ALLOW", "notify_msg": [{"id": f"{b}-{n}"} for n in range(1000)]}
        for b in range(7)
    ]
    broker = Broker(*batches)
    async with ingesting(parts, broker, form="decision-batch"):
        ids = [f"{b}-{n}" for b in range(7) for n in range(1000)]
        assert None not in await found(parts, *ids)


async def test_a_record_outside_the_horizon_goes_to_the_dead_letter() -> None:
    limits = {"min_delay": "1m", "max_delay": "15d"}
    settings = given(store="sqlite:///:memory:", routes={"push": {}}, limits=limits)
    async with open_parts(settings) as parts:
        now = parts.store.clock.now() / 1000
        broker = Broker(
            {"event_id": "soon", "execute_at": now + 5},
            {"event_id": "fits", "execute_at": now + 3600},
            {"event_id": "far", "execute_at": now + 16 * 86_400},
        )
        dead = DeadLetter()
        async with ingesting(parts, broker, dead, "schedule-event"):
            kept = [message is not None for message in await found(parts, "soon", "fits", "far")]
            assert kept == [False, True, False]
            reasons = [(letter.headers or {})[REASON] for letter in dead.kept]
            assert ["min_delay" in reasons[0], "max_delay" in reasons[1]] == [True, True]
            assert all(reason.startswith("at: ") for reason in reasons)


async def test_no_record_of_the_poison_catalogue_hurts_those_beside_it(parts: Parts) -> None:
    innocents = [{"id": f"m-{n}"} for n in range(50)]
    broker = Broker(*innocents[:25], *poison.VALUES, *innocents[25:])
    async with ingesting(parts, broker):
        assert None not in await found(parts, *(f"m-{n}" for n in range(50)))
        assert len(broker.acked) == 50 + len(poison.VALUES)
        places = range(25, 25 + len(poison.VALUES))
        kept = await found(parts, *(f"dead:q:{place}" for place in places))
        assert [one.state if one else None for one in kept] == [State.DEAD] * len(kept)
