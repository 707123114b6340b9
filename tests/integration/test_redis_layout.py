"""Partitions: growing with messages in place, shrinking refused, keys spread over a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.crc import key_slot

from penstock.model.errors import ConfigError
from penstock.model.message import NewMessage
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.redis import RedisStore, open_store
from penstock.stores.redis.keys import tag_of
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

FAR = 600_000
LEASE = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server: RedisServer) -> None:
    server.flush()


@asynccontextmanager
async def opened(
    server: RedisServer, partitions: int | None, *, retention: int = 86_400_000
) -> AsyncIterator[MessageStore]:
    store = (
        await open_store(
            server.url, total_partitions=partitions, retention=retention, retention_count=1_000_000
        )
    ).messages
    try:
        yield store
    finally:
        await store.close()


def messages(prefix: str, number: int, due: int) -> list[NewMessage]:
    return [
        NewMessage(id=f"{prefix}{n}", route="r", key="k", payload=b"1", due=due)
        for n in range(number)
    ]


async def test_fewer_partitions_than_the_store_has_are_refused(server: RedisServer) -> None:
    async with opened(server, 8):
        pass
    with pytest.raises(ConfigError, match=r"8 partitions .* cannot be reduced to 4"):
        async with opened(server, 4):
            pass
    async with opened(server, 8):
        pass


@pytest.mark.parametrize(("found", "word"), [(None, "before 0.2"), ("99", "upgrade Penstock")])
async def test_a_store_of_another_format_is_refused(
    server: RedisServer, found: str | None, word: str
) -> None:
    async with opened(server, 8):
        pass
    if found is None:
        server.cli("HDEL", "penstock:layout", "format")
    else:
        server.cli("HSET", "penstock:layout", "format", found)
    with pytest.raises(ConfigError, match=word):
        async with opened(server, 8):
            pass


async def test_what_holds_leases_is_never_a_listpack(server: RedisServer) -> None:
    """Even a single one: a listpack would be walked through for every lease that ends."""
    async with opened(server, 2) as store:
        now = store.clock.now()
        await store.put(messages("m", 1, now), now)
        assert len((await store.claim("r", 1, LEASE, store.clock.now())).messages) == 1
    with server.client as client:
        names = [name for name in client.scan_iter("*") if name[-2:] in (b":l", b":t")]
        found = {name[-1:]: client.object("encoding", name) for name in names}
    assert found == {b"l": b"hashtable", b"t": b"skiplist"}


async def test_whoever_does_not_say_how_many_has_as_many_as_the_store(server: RedisServer) -> None:
    async with opened(server, None) as store:
        assert (await store.check())["partitions"] == "8"
    async with opened(server, 16):
        pass
    async with opened(server, None) as store:
        assert (await store.check())["partitions"] == "16"


async def test_a_grown_store_finds_claims_and_cancels_what_was_there(server: RedisServer) -> None:
    async with opened(server, 2) as small:
        now = small.clock.now()
        await small.put(messages("old", 40, now) + messages("far", 20, now + FAR), now)
        held = await small.claim("r", 5, LEASE, small.clock.now())
        assert len(held.messages) == 5
    async with opened(server, 16) as large:
        now = large.clock.now()
        known = [f"old{n}" for n in range(40)] + [f"far{n}" for n in range(20)]
        assert None not in await large.find(known)
        receipts = await large.put(messages("old", 40, now) + messages("new", 40, now), now)
        assert [r.duplicate for r in receipts] == [True] * 40 + [False] * 40
        cancels = [Amendment(action=Action.CANCEL, id=f"far{n}") for n in range(20)]
        assert {a.answer for a in await large.amend(cancels, now)} == {Answer.DONE}
        claim = await large.claim("r", 200, LEASE, large.clock.now())
        assert len(claim.messages) == 75
        assert len({m.id for m in claim.messages} | {m.id for m in held.messages}) == 80


async def test_a_process_with_the_old_layout_follows_the_new_one(server: RedisServer) -> None:
    async with opened(server, 2) as old, opened(server, 8) as new:
        now = old.clock.now()
        await new.put(messages("n", 30, now), now)
        receipts = await old.put(messages("n", 30, now) + messages("o", 30, now), now)
        assert [r.duplicate for r in receipts] == [True] * 30 + [False] * 30
        taken: list[str] = []
        for _ in range(3):
            claim = await old.claim("r", 100, LEASE, old.clock.now())
            taken += [m.id for m in claim.messages]
        assert len(taken) == len(set(taken)) == 60


async def test_a_process_with_the_old_layout_finds_and_cancels_what_the_new_one_has(
    server: RedisServer,
) -> None:
    async with opened(server, 2) as old, opened(server, 2) as other, opened(server, 8) as new:
        now = new.clock.now()
        await new.put(messages("n", 30, now + FAR), now)
        cancels = [Amendment(action=Action.CANCEL, id=f"n{n}") for n in range(30)]
        assert len((await other.search(Filter(), None, 100)).items) == 30
        amended = await old.amend(cancels, now)
        assert {one.answer for one in amended} == {Answer.DONE}
    async with opened(server, 8) as old, opened(server, 32):
        assert None not in await old.find([f"n{n}" for n in range(30)])
        assert await old.find(["nobody"]) == [None]


async def test_a_process_with_the_old_layout_pauses_the_new_partitions_too(
    server: RedisServer,
) -> None:
    async with opened(server, 2) as old, opened(server, 8) as new:
        now = new.clock.now()
        await new.put(messages("n", 30, now), now)
        await old.pause("r", True)
        assert (await new.claim("r", 100, LEASE, new.clock.now())).messages == ()
        await old.pause("r", False)
        assert len((await new.claim("r", 100, LEASE, new.clock.now())).messages) == 30


async def test_an_idle_process_with_the_old_layout_claims_from_new_partitions(
    server: RedisServer,
) -> None:
    async with opened(server, 1) as old, opened(server, 16) as new:
        now = new.clock.now()
        await new.put(messages("n", 50, now), now)
        first = await old.claim("r", 100, LEASE, old.clock.now())
        second = await old.claim("r", 100, LEASE, old.clock.now())
        assert len(first.messages) + len(second.messages) == 50


async def test_a_growth_that_was_left_half_done_is_finished_by_the_next_put(
    server: RedisServer,
) -> None:
    async with opened(server, 2) as store:
        with server.client as client:
            client.hset("penstock:layout", "pending", 4)
            for partition in range(3):  # whoever began it died before the last
                client.set(f"penstock:{{{tag_of(partition)}}}:v", 2)
        now = store.clock.now()
        receipts = await store.put(messages("x", 20, now), now)
        assert not any(r.duplicate for r in receipts)
        assert (await store.check())["partitions"] == "4"
        assert len((await store.claim("r", 100, LEASE, store.clock.now())).messages) == 20


async def test_whoever_does_not_know_of_a_growth_does_not_undo_it(server: RedisServer) -> None:
    async with opened(server, 2) as behind, opened(server, 8):
        assert isinstance(behind, RedisStore)
        assert await behind._session.layout._step("grow", 4) is None
        await behind._session.layout.open(8)
        assert (await behind.check())["partitions"] == "8"


async def test_older_generations_are_forgotten_once_they_hold_nothing(
    server: RedisServer,
) -> None:
    async with opened(server, 2, retention=0) as small:
        now = small.clock.now()
        await small.put(messages("old", 10, now + FAR), now)
    async with opened(server, 4, retention=0) as large:
        cancels = [Amendment(action=Action.CANCEL, id=f"old{n}") for n in range(10)]
        await large.amend(cancels, large.clock.now() - 10)
        while await large.purge(large.clock.now(), 100):
            pass
        with server.client as client:
            assert client.hget("penstock:layout", "totals") == b"0,4"
        figures = await large.figures(large.clock.now())
        assert figures.states[State.CANCELLED] == 0


async def test_a_paused_route_stays_paused_in_new_partitions(server: RedisServer) -> None:
    async with opened(server, 1) as small:
        await small.pause("r", True)
    async with opened(server, 8) as large:
        now = large.clock.now()
        await large.put(messages("x", 20, now), now)
        assert (await large.claim("r", 100, LEASE, large.clock.now())).messages == ()
        assert await large.paused() == {"r"}


@pytest.mark.parametrize("partitions", [3, 8, 12, 64])
@pytest.mark.parametrize("primaries", [3, 4, 5])
def test_partitions_spread_evenly_over_a_clusters_slots(partitions: int, primaries: int) -> None:
    owners = Counter(
        key_slot(f"{{{tag_of(p)}}}".encode()) * primaries // 16_384 for p in range(partitions)
    )
    fair = partitions / primaries
    assert max(owners.values()) <= fair + 2
    assert min(owners.get(n, 0) for n in range(primaries)) >= max(0, fair - 2)
