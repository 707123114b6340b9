"""Promises per key on Redis: growing, half-done puts, processes that did not know, long lines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import (
    DELIVERED,
    Action,
    Amendment,
    Answer,
    Retry,
    SendOutcome,
    Settlement,
)
from penstock.model.query import Filter
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.settings import given
from penstock.stores.redis import RedisStore, open_store
from penstock.stores.redis.messages import pointers
from penstock.stores.redis.messages import put as put_step
from penstock.stores.redis.messages.put import PutGroups
from penstock.wiring import open_parts, open_worker
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

ORDERED = KeyLimit(1, ordered=True)
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
    server: RedisServer, partitions: int = 8, *, retention: int = 86_400_000, keyed: bool = True
) -> AsyncIterator[RedisStore]:
    store = (
        await open_store(
            server.url, total_partitions=partitions, retention=retention, retention_count=1_000_000
        )
    ).messages
    assert isinstance(store, RedisStore)
    if keyed:
        await store.keep_turns(["r"])
    try:
        yield store
    finally:
        await store.close()


async def put(store: RedisStore, *ids: str, key: str = "ann", ahead: int = -1_000) -> None:
    """Due one after the other."""
    now = store.clock.now()
    messages = [
        NewMessage(id=one, route="r", key=key, payload=b"1", due=now + ahead + place)
        for place, one in enumerate(ids)
    ]
    await store.put(messages, now)


async def send_all(store: RedisStore, per_key: KeyLimit = ORDERED) -> list[list[str]]:
    """The ids of claim after claim, all delivered, until nothing is due."""
    gone: list[list[str]] = []
    while True:
        now = store.clock.now()
        claim = await store.claim_keyed("r", 10, LEASE, now, per_key)
        if not claim.messages:
            return gone
        gone.append([message.id for message in claim.messages])
        await settle(store, claim.token, *claim.messages)


async def settle(store: RedisStore, token: int, *messages: object) -> None:
    ends = [
        Settlement(message=message, token=token, state=State.DELIVERED, event="delivered")  # type: ignore[arg-type] # a test's shorthand
        for message in messages
    ]
    assert set(await store.settle(ends, store.clock.now())) == {State.DELIVERED}


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{place}" for place in range(number)]


async def test_order_is_kept_when_partitions_are_added(server: RedisServer) -> None:
    async with opened(server, 3) as old:
        await put(old, *names("a", 5), ahead=-2_000)
        async with opened(server, 16) as grown:
            await put(grown, *names("b", 5))
            await put(old, *names("c", 5), ahead=-500)
            (found,) = await grown.find(["a3"])
            assert found is not None
            (again,) = await grown.put(
                [NewMessage(id="a3", route="r", key="ann", payload=b"2", due=0)], grown.clock.now()
            )
            assert again.duplicate
            wanted = [[one] for one in (*names("a", 5), *names("b", 5), *names("c", 5))]
            assert await send_all(grown) == wanted


async def test_where_a_key_lives_is_said_once(server: RedisServer) -> None:
    async with opened(server, 3) as first, opened(server, 3, keyed=False) as late:
        await first._session.layout.open(16)
        await late.keep_turns(["r", "s"])  # by what it knows of three partitions
        assert late._session.layout.keyed == {"r": 3, "s": 16}
        await first.keep_turns(["r", "s"])
        assert first._session.layout.keyed == {"r": 3, "s": 16}


async def test_a_put_that_died_after_reserving_is_finished_by_the_same_put(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die(*_: object) -> None:
        raise Died

    async with opened(server) as store:
        with monkeypatch.context() as broken:
            broken.setattr(PutGroups, "build", die)
            with pytest.raises(Died):
                await put(store, *names("m", 9))
        assert await store.find(names("m", 9)) == [None] * 9
        figures = await store.figures(store.clock.now())
        assert figures.states[State.SCHEDULED] == 0
        assert (await store.search(Filter(), None, 10)).items == []
        await put(store, *names("m", 9))
        assert await send_all(store) == [[one] for one in names("m", 9)]


async def test_an_id_that_was_only_reserved_can_be_used_for_another_key_in_the_end(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server) as store:
        layout = store._session.layout
        away = next(
            one for one in names("m", 99) if layout.home(one) != layout.place("r", "ann", one)
        )
        await pointers.reserve(store._session, {0: (away, layout.place("r", "ann", away))})
        monkeypatch.setattr(pointers, "OVER_MS", 0)
        await put(store, away, key="somebody else")
        (found,) = await store.find([away])
        assert found is not None
        assert found.key == "somebody else"


async def test_a_reservation_that_is_too_old_is_not_used(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = pointers.reserve
    moments: list[int] = []

    async def late(*given: object) -> pointers.Reserved:
        done = await reserve(*given)  # type: ignore[arg-type] # passed through
        if not moments:
            done = done._replace(moments={i: at - 100_000 for i, at in done.moments.items()})
        moments.extend(done.moments.values())
        return done

    monkeypatch.setattr(put_step, "reserve", late)
    async with opened(server) as store:
        await put(store, *names("m", 9))
        assert max(moments) - min(moments) > 50_000  # it was reserved again
        assert await send_all(store) == [[one] for one in names("m", 9)]


async def test_pointers_go_with_the_messages_they_lead_to(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointers, "OVER_MS", -1)
    async with opened(server, retention=0) as store:
        await put(store, *names("m", 20))
        await send_all(store)
        while await store.purge(store.clock.now() + 10, 100):
            pass
        await store.purge(store.clock.now() + 10, 100)
        left = [
            await store._session.runner.call("HLEN", keys.records, partition=p)
            for p, keys in enumerate(store._session.layout.all_keys())
        ]
        assert left == [0] * 8


async def test_a_route_may_begin_to_promise_while_it_holds_messages(server: RedisServer) -> None:
    async with opened(server, keyed=False) as store:
        await put(store, *names("old", 12))
        held = await store.claim("r", 3, LEASE, store.clock.now())
        assert len(held.messages) == 3
        await store.keep_turns(["r"])
        await put(store, *names("new", 3), ahead=-500)
        gone = await send_all(store)
        await settle(store, held.token, *held.messages)
        gone += await send_all(store)
        sent = [one for claim in gone for one in claim] + [m.id for m in held.messages]
        assert sorted(sent) == sorted(names("old", 12) + names("new", 3))
        order = [one for one in sent if one.startswith("new")]
        assert order == names("new", 3)  # what was put since is in order


async def test_a_process_that_did_not_know_does_no_harm(server: RedisServer) -> None:
    async with opened(server, keyed=False) as other, opened(server) as store:
        await put(other, *names("m", 8))  # its layout is older: it is told
        now = other.clock.now()
        change = Amendment(action=Action.RESCHEDULE, id="m0", due=now - 10)
        assert (await other.amend([change], now))[0].answer is Answer.DONE
        other._session.layout.keyed.clear()  # as if nobody had told it
        taken = await other.claim("r", 2, LEASE, other.clock.now())
        assert len(taken.messages) == 2
        assert (await store.claim_keyed("r", 9, LEASE, store.clock.now(), ORDERED)).messages == ()
        await settle(other, taken.token, *taken.messages)
        rest = [
            one for one in [*names("m", 8)[1:], "m0"] if one not in {m.id for m in taken.messages}
        ]
        assert await send_all(store) == [[one] for one in rest]


async def test_turns_that_were_lost_are_found_again(server: RedisServer) -> None:
    async with opened(server) as store:
        await put(store, *names("m", 30))
        session = store._session
        claim = await store.claim_keyed("r", 1, LEASE, store.clock.now(), ORDERED)
        for keys in session.layout.all_keys():
            await session.runner.call("DEL", *keys.turns("r"), partition=keys.number)
        assert (await store.claim_keyed("r", 9, LEASE, store.clock.now(), ORDERED)).messages == ()
        await settle(store, claim.token, *claim.messages)
        assert await send_all(store) == [[one] for one in names("m", 30)[1:]]


async def test_a_waiting_message_may_be_replaced_by_one_of_another_key(server: RedisServer) -> None:
    async with opened(server) as store:
        await put(store, "m")
        now = store.clock.now()
        other = NewMessage(
            id="m", route="r", key="bob", payload=b"2", due=now, on_conflict=OnConflict.REPLACE
        )
        await store.put([other], now)
        claim = await store.claim_keyed("r", 9, LEASE, store.clock.now(), ORDERED)
        assert [(m.id, m.key) for m in claim.messages] == [("m", "bob")]


async def test_a_long_line_of_a_busy_key_is_not_read(server: RedisServer) -> None:
    async with opened(server) as store:

        async def cost() -> int:
            """Commands the server runs for the claim and the end of one message of another key."""
            await put(store, f"b{store.clock.now()}", key="bob")
            calls = await _commands(store)
            claim = await store.claim_keyed("r", 9, LEASE, store.clock.now(), ORDERED)
            assert [m.key for m in claim.messages] == ["bob"]
            await settle(store, claim.token, *claim.messages)
            return await _commands(store) - calls

        await put(store, "a")
        assert (
            len((await store.claim_keyed("r", 9, LEASE, store.clock.now(), ORDERED)).messages) == 1
        )
        short = await cost()
        await put(store, *names("a", 5_000))
        await cost()  # the key that is busy is looked at once
        assert await cost() <= short


async def _commands(store: RedisStore) -> int:
    """Commands run since the start, those inside scripts too."""
    (found,) = (await store._session.runner.each("INFO", "commandstats")).values()
    return sum(stats["calls"] for stats in found.values())


class _Provider:
    """Takes one message at a time and notes what it was doing meanwhile."""

    name = "provider://"
    max_batch = 1
    concurrency = 20

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}
        self.busy: Counter[str] = Counter()
        self.crowd = 0
        self.left = 28
        self.done = asyncio.Event()

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        (message,) = batch
        self.busy[message.key] += 1
        self.crowd = max(self.crowd, self.busy[message.key])
        self.sent.setdefault(message.key, []).append(message.id)
        await asyncio.sleep(0.002)
        self.busy[message.key] -= 1
        self.left -= 1
        if self.left == 0:
            self.done.set()
        return [Retry("once") if message.attempt == 1 and message.id[-1] == "3" else DELIVERED]

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def test_two_workers_send_every_key_in_order_with_its_retries(server: RedisServer) -> None:
    provider = _Provider()
    settings = given(
        store=server.url,
        routes={"r": {"sink": "log://", "ordered": True, "backoff": "5ms..10ms"}},
    )
    wanted = {key: names(key, 6) for key in ("ann", "bob", "cat", "dan")}
    async with AsyncExitStack() as stack:
        workers = []
        for _ in range(2):
            parts = await stack.enter_async_context(open_parts(settings))
            workers.append(await stack.enter_async_context(open_worker(parts, {"r": provider})))
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        store = parts.store.messages
        assert isinstance(store, RedisStore)
        for key, ids in wanted.items():
            await put(store, *ids, key=key)
        async with asyncio.timeout(300):
            await provider.done.wait()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)
    assert provider.crowd == 1
    for key, ids in wanted.items():
        assert provider.sent[key] == [*ids[:4], *ids[3:]]  # the one that failed once comes again
