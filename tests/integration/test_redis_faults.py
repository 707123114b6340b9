"""Redis away, restarted, flushed, cut off in the middle: nothing lost, nothing done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from msgspec.structs import replace

from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import (
    DELIVERED,
    Action,
    Amendment,
    Answer,
    Claim,
    SendOutcome,
    Settlement,
)
from penstock.model.route import KeyLimit, Route
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.redis import RedisStore, open_store
from penstock.testing.proxy import Proxy
from penstock.testing.store_cases.base import timeline
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

FAR = 600_000
LEASE = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("--appendfsync", "always", aof=True) as server:
        yield server


@pytest_asyncio.fixture
async def proxy(server: RedisServer) -> AsyncIterator[Proxy]:
    server.flush()
    async with Proxy("127.0.0.1", server.port) as proxy:
        yield proxy


@asynccontextmanager
async def opened(port: int, options: str = "", partitions: int = 1) -> AsyncIterator[RedisStore]:
    store = (
        await open_store(
            f"redis://127.0.0.1:{port}{options}",
            total_partitions=partitions,
            retention=86_400_000,
            retention_count=1_000_000,
        )
    ).messages
    assert isinstance(store, RedisStore)
    try:
        yield store
    finally:
        await store.close()


@pytest_asyncio.fixture
async def store(proxy: Proxy) -> AsyncIterator[MessageStore]:
    async with opened(proxy.port, "?timeout=1s") as store:
        yield store


def new(name: str, due: int, **fields: object) -> NewMessage:
    return NewMessage(id=name, route="r", key=name, payload=b"1", due=due, **fields)  # type: ignore[arg-type]


async def claimed(store: MessageStore, *names: str) -> list[Settlement]:
    """Put, claim, and say that they were delivered."""
    now = store.clock.now()
    await store.put([new(name, now) for name in names], now)
    claim = await store.claim("r", 100, LEASE, store.clock.now())
    assert sorted(m.id for m in claim.messages) == sorted(names)
    return [
        Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
        for m in claim.messages
    ]


async def recovered(store: MessageStore) -> None:
    """Wait until the store is there again by itself, bounded."""
    for _ in range(3_000):
        try:
            await store.check()
        except StoreUnavailable as exc:
            await asyncio.sleep(min(exc.retry_after, 0.1))
        else:
            return
    raise AssertionError("the store did not come back")


async def test_a_put_whose_answer_is_lost_is_repeated_and_no_duplicate(
    store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    await store.put([new("first", now + FAR)], now)
    proxy.lose_answers()
    receipts = await store.put([new("a", now + FAR), new("b", now)], now)
    assert [(r.id, r.duplicate) for r in receipts] == [("a", False), ("b", False)]
    (again,) = await store.put([new("a", now + FAR)], now)
    assert again.duplicate


async def test_a_claim_whose_answer_is_lost_gives_its_messages_once(
    store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    await store.put([new(f"m{n}", now) for n in range(5)], now)
    proxy.lose_answers()
    claim = await store.claim("r", 3, LEASE, store.clock.now())
    assert len(claim.messages) == 3
    rest = await store.claim("r", 10, LEASE, store.clock.now())
    assert len(rest.messages) == 2
    assert (await store.figures(store.clock.now())).states[State.LEASED] == 5


async def test_a_settle_whose_answer_is_lost_says_what_was_done(
    store: MessageStore, proxy: Proxy
) -> None:
    settlements = await claimed(store, "a", "b")
    proxy.lose_answers()
    now = store.clock.now()
    assert await store.settle(settlements, now) == [State.DELIVERED] * 2
    assert await store.settle(settlements, now) == [None, None]


async def test_a_settle_repeated_after_an_outage_says_what_was_done(
    store: MessageStore, proxy: Proxy
) -> None:
    settlements = await claimed(store, "a", "b")
    proxy.lose_answers(100)
    with pytest.raises(StoreUnavailable):
        await store.settle(settlements, store.clock.now())
    proxy.lose_answers(0)
    await recovered(store)
    assert await store.settle(settlements, store.clock.now()) == [State.DELIVERED] * 2
    assert await store.settle(settlements, store.clock.now()) == [None, None]


def as_retries(settlements: list[Settlement], due: int) -> list[Settlement]:
    """The same leases, ended by a retry."""
    return [
        replace(one, state=State.SCHEDULED, event="retry", due=due, error="busy")
        for one in settlements
    ]


@pytest.mark.parametrize("lost", [1, 100])
async def test_a_retry_whose_answer_is_lost_is_done_once(
    store: MessageStore, proxy: Proxy, lost: int
) -> None:
    due = store.clock.now() + FAR
    settlements = as_retries(await claimed(store, "a", "b"), due)
    proxy.lose_answers(lost, after=1)  # the look-up's answer comes, those of the change do not
    try:
        states = await store.settle(settlements, store.clock.now())
    except StoreUnavailable:
        assert lost > 1
        proxy.lose_answers(0)
        await recovered(store)
        states = await store.settle(settlements, store.clock.now())
    assert states == [State.SCHEDULED] * 2
    assert await store.settle(settlements, store.clock.now()) == [None, None]
    lines = [line.event for line in await timeline(store, "a")]
    assert lines.count("retry") == 1
    figures = await store.figures(store.clock.now())
    assert (figures.states[State.SCHEDULED], figures.states[State.LEASED]) == (2, 0)


async def test_a_lost_lease_whose_reaping_was_not_answered_is_returned_once(
    store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    await store.put([new("x", now)], now)
    await store.claim("r", 1, 30, store.clock.now())
    await asyncio.sleep(0.05)
    proxy.lose_answers(after=1)
    assert [one.id for one in await store.reap(store.clock.now(), 10)] == ["x"]
    assert await store.reap(store.clock.now(), 10) == []
    assert (await store.figures(store.clock.now())).states[State.SCHEDULED] == 1


async def test_an_amendment_whose_answer_is_lost_is_done_once(
    store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    await store.put([new("x", now + FAR)], now)
    change = Amendment(action=Action.RESCHEDULE, id="x", version=1, due=now + FAR + 1)
    await store.find(["x"])
    proxy.lose_answers(after=1)  # the look-up's answer comes, that of the change does not
    (answer,) = await store.amend([change], now)
    assert answer.answer is Answer.DONE
    assert answer.message is not None
    assert answer.message.version == 2
    (again,) = await store.amend([change], now)
    assert again.answer is Answer.CONFLICT


async def test_connections_cut_again_and_again_lose_and_repeat_nothing(
    store: MessageStore, proxy: Proxy
) -> None:
    async def cut() -> None:
        for _ in range(30):
            await asyncio.sleep(0.01)
            proxy.cut()

    async def put_all() -> None:
        for n in range(200):
            now = store.clock.now()
            for _ in range(50):
                try:
                    await store.put([new(f"m{n:03}", now)], now)
                    break
                except StoreUnavailable as exc:
                    await asyncio.sleep(exc.retry_after)

    await asyncio.gather(cut(), put_all())
    await recovered(store)
    seen: list[str] = []
    while (claim := await store.claim("r", 64, LEASE, store.clock.now())).messages:
        seen += [m.id for m in claim.messages]
    assert sorted(seen) == [f"m{n:03}" for n in range(200)]


async def test_a_store_that_is_away_says_when_to_try_again_and_comes_back(
    store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    proxy.refuse()
    for _ in range(6):
        with pytest.raises(StoreUnavailable) as failure:
            await store.put([new("x", now)], now)
        assert failure.value.retry_after > 0
        assert "is away: " in failure.value.message  # why, also while nobody is let through
    proxy.refuse(False)
    await recovered(store)
    (receipt,) = await store.put([new("x", now)], now)
    assert not receipt.duplicate


async def test_a_server_that_hangs_is_answered_for_in_time(
    store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    proxy.hang()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store.put([new("x", now)], now)
    proxy.flow()
    await recovered(store)
    await store.put([new("x", now)], now)


async def test_flushed_scripts_are_loaded_again(store: MessageStore, server: RedisServer) -> None:
    settlements = await claimed(store, "a")
    with server.client as client:
        client.script_flush()
    assert await store.settle(settlements, store.clock.now()) == [State.DELIVERED]
    with server.client as client:
        client.script_flush()
    assert await claimed(store, "b")


async def test_a_restarted_server_has_everything_and_is_used_again(
    store: MessageStore, server: RedisServer
) -> None:
    now = store.clock.now()
    await store.put([new("waits", now + FAR), new("due", now)], now)
    server.restart()
    await recovered(store)
    claim = await store.claim("r", 10, LEASE, store.clock.now())
    assert [m.id for m in claim.messages] == ["due"]
    (waits,) = await store.find(["waits"])
    assert waits is not None


async def test_a_server_that_lost_everything_is_given_its_layout_again(
    store: MessageStore, server: RedisServer
) -> None:
    server.flush()
    now = store.clock.now()
    (receipt,) = await store.put([new("x", now)], now)
    assert not receipt.duplicate
    assert [m.id for m in (await store.claim("r", 10, LEASE, store.clock.now())).messages] == ["x"]


async def test_a_paused_worker_that_wakes_after_its_lease_cannot_settle(
    store: MessageStore, server: RedisServer
) -> None:
    now = store.clock.now()
    await store.put([new("x", now)], now)
    claim = await store.claim("r", 1, 30, store.clock.now())
    await asyncio.sleep(0.05)
    async with opened(server.port) as other:
        assert [r.id for r in await other.reap(other.clock.now(), 10)] == ["x"]
        theirs = await other.claim("r", 1, LEASE, other.clock.now())
        assert [m.attempt for m in theirs.messages] == [2]
    late = Settlement(
        message=claim.messages[0], token=claim.token, state=State.DELIVERED, event="delivered"
    )
    assert await store.settle([late], store.clock.now()) == [None]


async def test_a_put_wakes_an_idle_worker_of_another_process(
    store: MessageStore, server: RedisServer
) -> None:
    async with opened(server.port) as other:
        heard: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

        def hear(route: str, due: int) -> None:
            if not heard.done():
                heard.set_result((route, due))

        other.listen(hear)
        wakeups = other._session.wakeups
        await asyncio.wait_for(wakeups.subscribed.wait(), 300)
        now = store.clock.now()
        await store.put([new("x", now + 100)], now)
        assert await asyncio.wait_for(heard, 300) == ("r", now + 100)


async def test_a_server_that_stalls_beyond_its_time_out_makes_messages_late_but_repeats_none(
    server: RedisServer,
) -> None:
    server.flush()
    async with opened(server.port, "?timeout=300ms", partitions=8) as store:
        sink = Collecting()
        route = Route(name="r")
        due = store.clock.now() + 700
        await store.put([new(f"m{n:03}", due) for n in range(100)], store.clock.now())
        worker = Worker(store.as_store(), {"r": (route, sink)}, Observer(), lease=LEASE)
        task = asyncio.create_task(worker.run())
        try:
            await until(lambda: store.clock.now() >= due - 100)
            server.pause()
            await until(lambda: store.clock.now() >= due + 1_000)  # several time-outs
            server.resume()
            await until(lambda: len(sink.sent) >= 100)
        finally:
            server.resume()
            worker.stop()
            await task
        assert sorted(sink.sent) == [(f"m{n:03}", 1) for n in range(100)]
        assert store.clock.now() < due + LEASE


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_claim_whose_answer_never_came_is_asked_for_again(
    server: RedisServer, keyed: bool
) -> None:
    server.flush()
    async with opened(server.port, "?timeout=300ms", partitions=8) as store:

        async def claim(limit: int) -> Claim:
            if keyed:
                limits = KeyLimit(1, ordered=True)
                return await store.claim_keyed("r", limit, LEASE, store.clock.now(), limits)
            return await store.claim("r", limit, LEASE, store.clock.now())

        assert (await claim(1)).messages == ()
        now = store.clock.now()
        await store.put([new(f"m{n}", now) for n in range(8)], now)
        server.pause()
        try:
            with pytest.raises(StoreUnavailable):
                await claim(5)
        finally:
            server.resume()
        await recovered(store)
        again = await claim(5)
        rest = await claim(5)
        assert (len(again.messages), len(rest.messages)) == (5, 3)
        assert again.token != rest.token
        assert {m.attempt for m in again.messages + rest.messages} == {1}
        ends = [
            Settlement(message=m, token=again.token, state=State.DELIVERED, event="delivered")
            for m in again.messages
        ]
        assert await store.settle(ends, store.clock.now()) == [State.DELIVERED] * 5


async def test_a_claim_that_is_asked_for_again_after_its_lease_takes_nothing_from_others(
    server: RedisServer, store: MessageStore, proxy: Proxy
) -> None:
    now = store.clock.now()
    await store.put([new("x", now)], now)
    assert (await store.claim("other", 1, LEASE, now)).messages == ()
    proxy.lose_answers(100)
    with pytest.raises(StoreUnavailable):
        await store.claim("r", 1, 1, store.clock.now())
    proxy.lose_answers(0)
    await asyncio.sleep(0.02)  # its lease is over
    async with opened(server.port) as other:
        assert [r.id for r in await other.reap(other.clock.now(), 10)] == ["x"]
        theirs = await other.claim("r", 1, LEASE, other.clock.now())
        assert [m.attempt for m in theirs.messages] == [2]
    await recovered(store)
    assert (await store.claim("r", 1, LEASE, store.clock.now())).messages == ()


class Collecting:
    """A sink that takes everything."""

    name = "collecting://"
    max_batch = concurrency = 100

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        """(id, attempt)"""

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        self.sent += [(message.id, message.attempt) for message in batch]
        return [DELIVERED] * len(batch)

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what another process does
            await asyncio.sleep(0.01)
