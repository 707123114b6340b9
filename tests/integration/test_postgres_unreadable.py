"""A row that cannot be read is dead, kept as it is, and costs no other message anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import penstock
from penstock.model.message import Message
from penstock.model.outcome import Action, Answer
from penstock.model.query import Filter
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.stores.postgres.address import parse_address
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.store_cases.base import amend, ending, held, listed, new, settle, words
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

LEASE = 60_000
TWICE = '{"a":5,"a":"x"}'
"""The database reads the last of the two, and takes it for a text."""


class Held:
    """A store, and a hand in its tables."""

    def __init__(self, server: PostgresServer, store: PostgresStore, url: str) -> None:
        self._server = server
        self._schema = parse_address(url).schema
        self.url = url
        self.store = store

    def sql(self, text: str) -> str:
        return self._server.sql(f"SET search_path = {self._schema}; {text}")

    async def put(self, *ids: str, broken: str | None = None) -> None:
        now = self.store.clock.now()
        await self.store.put([new(one, key="k", due=now) for one in ids], now)
        if broken is not None:
            self.write(broken, "headers", TWICE)

    def write(self, message_id: str, column: str, text: str) -> None:
        self.sql(f"UPDATE messages SET {column} = '{text}' WHERE id = '{message_id}'")

    async def claim(self, limit: int = 10, *, keyed: bool = False) -> tuple[Message, ...]:
        now = self.store.clock.now()
        if keyed:
            claim = await self.store.claim_keyed("r", limit, LEASE, now, KeyLimit(5))
        else:
            claim = await self.store.claim("r", limit, LEASE, now)
        await settle(self.store, *(ending(one, claim.token) for one in claim.messages))
        return claim.messages


@pytest_asyncio.fixture
async def kept(postgres: PostgresServer) -> AsyncIterator[Held]:
    harness = PostgresHarness(postgres)
    store = (await harness.open()).messages
    assert isinstance(store, PostgresStore)
    yield Held(postgres, store, harness.url)
    await store.close()
    await harness.close()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("column", ["headers", "labels"])
async def test_a_claim_that_meets_a_row_it_cannot_read_makes_that_one_dead(
    kept: Held, column: str, keyed: bool
) -> None:
    if keyed:
        assert await kept.claim(keyed=True) == ()
    await kept.put("a", "b", "c")
    kept.write("b", column, TWICE)
    claimed = await kept.claim(keyed=keyed)
    assert [(one.id, one.attempt) for one in claimed] == [("a", 1), ("c", 1)]
    dead = await held(kept.store, "b")
    assert (dead.state, dead.attempt, dead.claimed) == (State.DEAD, 0, None)
    assert dead.last_error is not None
    assert f"{column} cannot be read" in dead.last_error
    assert (await words(kept.store, "b"))[-1] == "dead"
    assert kept.sql("SELECT count(*) FROM leases") == "0"
    assert kept.sql(f"SELECT {column} FROM messages WHERE id = 'b'") == TWICE


@pytest.mark.parametrize("keyed", [False, True])
async def test_an_earlier_decision_that_cannot_be_read_stops_no_message(
    kept: Held, keyed: bool
) -> None:
    if keyed:
        assert await kept.claim(keyed=True) == ()
    await kept.put("a", "b")
    kept.write("a", "decided", "{")
    claimed = await kept.claim(keyed=keyed)
    assert {(one.id, one.attempt) for one in claimed} == {("a", 1), ("b", 1)}


async def test_a_claim_of_rows_that_cannot_be_read_alone_is_empty_and_looks_again(
    kept: Held,
) -> None:
    await kept.put("a", "b", broken="a")
    now = kept.store.clock.now()
    claim = await kept.store.claim("r", 1, LEASE, now)
    assert claim.messages == ()
    assert claim.next_due is not None
    assert claim.next_due <= now
    assert [one.id for one in await kept.claim(1)] == ["b"]


async def test_a_row_that_cannot_be_read_breaks_no_list_and_no_change(kept: Held) -> None:
    await kept.put("a", "b", broken="a")
    shown = await kept.store.get("a")
    assert shown is not None
    found = [shown[0], *await kept.store.find(["b"])]
    assert [one.headers for one in found if one is not None] == [None, None]
    assert {one.id for one in await listed(kept.store, Filter(route="r"))} == {"a", "b"}
    assert await words(kept.store, "a") == ["accepted"]
    moved = await amend(kept.store, Action.RESCHEDULE, "a", due=kept.store.clock.now() + 1)
    assert moved.answer is Answer.DONE
    assert kept.sql("SELECT headers FROM messages WHERE id = 'a'") == TWICE
    assert (await amend(kept.store, Action.CANCEL, "a")).answer is Answer.DONE
    assert [one.id for one in await kept.claim()] == ["b"]


async def test_a_message_is_sent_once_its_row_was_mended_and_it_is_redriven(kept: Held) -> None:
    await kept.put("a", broken="a")
    assert await kept.claim() == ()
    await amend(kept.store, Action.REDRIVE, "a", due=kept.store.clock.now())
    assert await kept.claim() == ()
    assert (await held(kept.store, "a")).state is State.DEAD
    kept.write("a", "headers", '{"a":"x"}')
    await amend(kept.store, Action.REDRIVE, "a", due=kept.store.clock.now())
    (sent,) = await kept.claim()
    assert (sent.headers, sent.attempt) == ({"a": "x"}, 1)


async def test_a_lease_on_a_row_that_cannot_be_read_ends_like_any_other(kept: Held) -> None:
    await kept.put("a", "b")
    now = kept.store.clock.now()
    claim = await kept.store.claim("r", 10, 0, now)
    assert len(claim.messages) == 2
    kept.write("a", "labels", TWICE)
    assert len(await kept.store.reap(now, 10)) == 2
    assert [(one.id, one.attempt) for one in await kept.claim()] == [("b", 2)]


async def test_a_worker_sends_the_neighbours_of_a_row_it_cannot_read(kept: Held) -> None:
    sent: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    async def handle(message: Message) -> None:
        sent.put_nowait((message.id, message.attempt))

    await kept.put("a", "b", "c", broken="b")
    async with penstock.open(kept.url, routes={"r": handle}, worker=True) as engine:
        assert {await sent.get(), await sent.get()} == {("a", 1), ("c", 1)}
        await engine.schedule({}, id="later", route="r")
        assert await sent.get() == ("later", 1)
        assert (await engine.get("b")).state is State.DEAD


async def test_what_postgres_read_of_a_double_name_is_what_it_keeps(kept: Held) -> None:
    labels = '{"tz":5,"tz":"UTC"}'
    kept.sql(
        "SELECT put_message('a', 'r', 'k', '{}', NULL, "
        f"'{TWICE}', '{labels}', NULL, {kept.store.clock.now()}, NULL, 5)"
    )
    (sent,) = await kept.claim()
    assert sent.headers == {"a": "x"}
    assert sent.labels is not None
    assert sent.labels.tz == "UTC"
