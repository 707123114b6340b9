"""Redis' scripts that repeat a pure step do what the step does to each message.

Hot steps are written a second time, in Lua. Each is held equal to its step here, on a real server:
`put.lua` and `put_one.lua` ↔ `lifecycle.put` of new ids, `claim.lua` and `claim_keyed.lua` ↔
`lifecycle.lease` of what the reference in memory chooses, `deliver.lua` ↔ `lifecycle.settle` of the
delivered. Every other change of a message goes through its step (`messages/swap.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.lifecycle import Record, Step
from penstock.model.message import JSON, Event, Labels, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Claim, Settlement
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.model.timeline import lines_of
from penstock.ports.store import Store
from penstock.stores import memory
from penstock.stores.redis import open_store
from penstock.testing.store_cases.base import timeline
from systems.servers.redis import RedisServer
from tests.conformance.test_redis_machine import server

pytestmark = pytest.mark.slow

NOW, LEASE, DAY = 10_000, 500, 86_400_000
NAMES = [f"id-{number}" for number in range(12)]
dues = st.sampled_from([NOW - 3, NOW - 1, NOW, NOW + 1, NOW + 200_000, NOW + 3 * DAY])
plain = st.builds(
    NewMessage,
    id=st.sampled_from(NAMES),
    route=st.just("r"),
    key=st.sampled_from(["shared", "other"]),
    payload=st.binary(max_size=4),
    due=dues,
    priority=st.integers(4, 6),
)
full = st.builds(
    NewMessage,
    id=st.sampled_from(NAMES),
    route=st.sampled_from(["r", "s"]),
    key=st.sampled_from([*NAMES, "shared"]),
    payload=st.binary(max_size=4),
    due=dues,
    content_type=st.sampled_from([JSON, "text/plain"]),
    headers=st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)),
    expires=st.none() | st.just(NOW + 9),
    priority=st.integers(0, 9),
    labels=st.none() | st.just(Labels(channel="push", tags=("a",))),
    topic=st.none() | st.just("topic"),
    on_conflict=st.sampled_from(OnConflict),
    blocked=st.none() | st.just("not wanted"),
    dead=st.none() | st.just("unreadable"),
)
batches = st.lists(plain, min_size=1, max_size=12) | st.lists(full, min_size=1, max_size=12)


class Expected:
    """The messages by the pure steps alone."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.events: dict[str, list[Event]] = {}

    def take(self, name: str, step: Step[Any]) -> None:
        if step.record is not None:
            self.records[name] = step.record
            self.events.setdefault(name, []).extend(step.events)

    async def check(self, store: Store) -> None:
        """The store holds these, with these timelines, and no other."""
        found = await store.messages.find(NAMES)
        stored = {m.id: replace(m, ref=0) for m in found if m is not None}
        assert stored == {name: record.message for name, record in self.records.items()}
        for name, record in self.records.items():
            assert await timeline(store.messages, name) == lines_of(
                record.message, self.events[name]
            )


@asynccontextmanager
async def opened(redis: RedisServer) -> AsyncIterator[Store]:
    redis.flush()
    store = await open_store(redis.url, total_partitions=1, retention=DAY, retention_count=10**6)
    try:
        yield store
    finally:
        await store.messages.close()


async def put(store: Store, batch: list[NewMessage], expected: Expected) -> None:
    receipts = []
    for new in batch:
        step = lifecycle.put(expected.records.get(new.id), new, NOW)
        expected.take(new.id, step)
        receipts.append(step.answer)
    assert await store.messages.put(batch, NOW) == receipts


async def lease(expected: Expected, claim: Claim) -> None:
    """Take the pure step of each message that was given."""
    for message in claim.messages:
        step = lifecycle.lease(expected.records[message.id], claim.token, NOW)
        assert replace(message, ref=0) == step.answer
        expected.take(message.id, step)


async def reference(batch: list[NewMessage]) -> Store:
    store = await memory.open_store(
        "memory://", total_partitions=1, retention=DAY, retention_count=10**6
    )
    await store.messages.put(batch, NOW)
    return store


@settings(max_examples=60)
@given(batches)
async def test_put_lua_is_lifecycle_put_of_new_ids(batch: list[NewMessage]) -> None:
    async with opened(server()) as store:
        expected = Expected()
        await put(store, batch, expected)
        await expected.check(store)


@settings(max_examples=40)
@given(batches)
async def test_put_one_lua_is_lifecycle_put_of_new_ids(batch: list[NewMessage]) -> None:
    async with opened(server()) as store:
        expected = Expected()
        for new in batch:
            await put(store, [new], expected)
        await expected.check(store)


@settings(max_examples=60)
@given(batches, st.integers(1, 12))
async def test_claim_lua_is_lifecycle_lease(batch: list[NewMessage], limit: int) -> None:
    async with opened(server()) as store:
        expected = Expected()
        await put(store, batch, expected)
        claim = await store.messages.claim("r", limit, LEASE, NOW)
        chosen = await (await reference(batch)).messages.claim("r", limit, LEASE, NOW)
        assert [m.id for m in claim.messages] == [m.id for m in chosen.messages]
        await lease(expected, claim)
        await expected.check(store)


@settings(max_examples=60)
@given(batches, st.integers(1, 12), st.integers(1, 3), st.booleans())
async def test_claim_keyed_lua_is_lifecycle_lease(
    batch: list[NewMessage], limit: int, in_flight: int, ordered: bool
) -> None:
    per_key = KeyLimit(1 if ordered else in_flight, ordered=ordered)
    async with opened(server()) as store:
        assert store.keyed is not None
        assert store.turns is not None
        await store.turns.keep_turns(["r"])
        expected = Expected()
        await put(store, batch, expected)
        claim = await store.keyed.claim_keyed("r", limit, LEASE, NOW, per_key)
        other = await reference(batch)
        assert other.keyed is not None
        chosen = await other.keyed.claim_keyed("r", limit, LEASE, NOW, per_key)
        assert [m.id for m in claim.messages] == [m.id for m in chosen.messages]
        await lease(expected, claim)
        await expected.check(store)


@settings(max_examples=60)
@given(batches, st.data())
async def test_deliver_lua_is_lifecycle_settle_of_the_delivered(
    batch: list[NewMessage], data: st.DataObject
) -> None:
    async with opened(server()) as store:
        expected = Expected()
        await put(store, batch, expected)
        claim = await store.messages.claim("r", 12, LEASE, NOW)
        await lease(expected, claim)
        leased = {message.id: message for message in claim.messages}
        for name in data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4)):
            cancel = Amendment(action=Action.CANCEL, id=name)
            await store.messages.amend([cancel], NOW)
            expected.take(name, lifecycle.amend(expected.records.get(name), cancel, NOW))
        names = data.draw(st.lists(st.sampled_from(sorted(leased)), unique=True)) if leased else []
        settlements = [
            Settlement(
                message=leased[name],
                token=claim.token + data.draw(st.sampled_from([0, 0, 0, 1])),
                state=State.DELIVERED,
                event="delivered",
                allowed=data.draw(st.sampled_from([None, "caps", "no rule"])),
            )
            for name in names
        ]
        states = []
        for one in settlements:
            step = lifecycle.settle(expected.records[one.message.id], one, NOW + 1)
            expected.take(one.message.id, step)
            states.append(step.answer)
        assert await store.messages.settle(settlements, NOW + 1) == states
        await expected.check(store)
