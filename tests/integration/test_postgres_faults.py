"""A PostgreSQL that hangs, cuts connections or goes away: callers are told, and it goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Claim, SendOutcome
from penstock.model.route import KeyLimit, Route
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.postgres import history, lane, open_store
from penstock.stores.postgres.address import parse_address
from penstock.stores.postgres.session import Session
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.proxy import Proxy
from penstock.testing.store_cases.base import ending, new, timeline
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.postgres import PostgresServer, server_user
from tests.conformance.postgres_harness import PostgresHarness
from tests.integration.sqlite_files import until

T = TypeVar("T")
LEASE = 30_000


@asynccontextmanager
async def through(proxy: Proxy, server: PostgresServer) -> AsyncIterator[MessageStore]:
    """A store that reaches its server by the proxy."""
    harness = PostgresHarness(server)
    url = harness.url.replace(f":{server.port}/", f":{proxy.port}/")
    store = await open_store(
        url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
    )
    try:
        yield store.messages
    finally:
        await store.close()
        await harness.close()


async def repeated(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of the first call for which every connection is there again."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.05)


async def until_it_answers(store: MessageStore) -> None:
    while True:
        try:
            await store.check()
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_connection_that_was_cut_is_replaced_and_nobody_notices(
    postgres: PostgresServer,
) -> None:
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        await store.put([new("one", due=now)], now)
        proxy.cut()
        await store.put([new("two", due=now)], now)
        assert None not in await store.find(["one", "two"])


async def test_a_postgres_that_refuses_is_named_and_found_again(postgres: PostgresServer) -> None:
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailable, match=str(proxy.port)):
            await store.put([new("one", due=now)], now)
        proxy.refuse(False)
        await until_it_answers(store)
        assert await store.find(["one"]) == [None]
        await store.put([new("one", due=now)], now)


async def test_a_postgres_that_hangs_leaves_no_caller_without_an_answer(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PATIENCE", 1.0)
    monkeypatch.setattr(lane, "CLOSE_PATIENCE", 1.0)
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        proxy.hang()
        with pytest.raises(StoreUnavailable, match="no answer"):
            await store.put([new("one", due=now)], now)
        proxy.flow()
        proxy.cut()
        await until_it_answers(store)
        await store.put([new("one", due=now)], now)
        assert None not in await store.find(["one"])


async def test_a_postgres_that_stalls_makes_messages_late_but_repeats_none(
    postgres: PostgresServer,
) -> None:
    """An answer is waited for, so that what was claimed meanwhile is not leased to nobody."""
    harness = PostgresHarness(postgres, own_clock=True)
    async with Proxy("127.0.0.1", postgres.port) as proxy:
        url = harness.url.replace(f":{postgres.port}/", f":{proxy.port}/")
        opened = await open_store(
            url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
        )
        store, sink = opened.messages, Collecting()
        due = store.clock.now() + 700
        await store.put([new(f"m{n:03}", due=due) for n in range(100)], store.clock.now())
        worker = Worker(opened, {"r": (Route(name="r"), sink)}, Observer(), lease=LEASE)
        running = asyncio.create_task(worker.run())
        try:
            await until(lambda: store.clock.now() >= due - 100)
            proxy.hang()
            await until(lambda: store.clock.now() >= due + 1_000)
            proxy.flow()
            await until(lambda: len(sink.sent) >= 100)
        finally:
            proxy.flow()
            worker.stop()
            await running
        assert sorted(sink.sent) == [(f"m{n:03}", 1) for n in range(100)]
        assert store.clock.now() < due + LEASE
        await store.close()
    await harness.close()


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_claim_whose_answer_postgres_never_gave_is_claimed_again(
    postgres: PostgresServer, keyed: bool
) -> None:
    """Its commit arrived, its answer did not: another claim gives it back and takes it anew.

    A claim that is one call finds its answer lost and tries the plain way: there, too, it is lost.
    """
    most = 1 if keyed else 1_000
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:

        async def claim() -> Claim:
            now = store.clock.now()
            if not keyed:
                return await store.claim("r", 100, LEASE, now)
            assert isinstance(store, PostgresStore)
            return await store.claim_keyed("r", 100, LEASE, now, KeyLimit(1, ordered=True))

        assert (await claim()).messages == ()
        now = store.clock.now()
        ids = {f"m{n}" for n in range(10)}
        await store.put([new(name, due=now) for name in ids], now)
        answers, lost = 0, False
        while not lost:  # later and later, until it is the commit's
            await until_it_answers(store)
            proxy.lose_answers(most, after=answers)
            try:
                claimed = await claim()
            except StoreUnavailable:
                proxy.lose_answers(0)
                await until_it_answers(store)
                found = await repeated(lambda: store.find(sorted(ids)))
                lost = all(one is not None and one.state is State.LEASED for one in found)
            else:
                proxy.lose_answers(0)
                returned = [
                    ending(one, claimed.token, State.SCHEDULED, due=now, refund=True)
                    for one in claimed.messages
                ]
                await store.settle(returned, now)
            answers += 1
        again = await repeated(claim)
        assert {message.id for message in again.messages} == ids
        assert {message.attempt for message in again.messages} == {1}


async def test_a_claim_that_postgres_answers_in_vain_is_made_anew(
    postgres: PostgresServer,
) -> None:
    """One lost answer costs no caller anything, and no message an attempt."""
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        await store.put([new(f"m{n}", due=now) for n in range(10)], now)
        assert (await store.claim("other", 100, LEASE, now)).messages == ()
        proxy.lose_answers(1)
        claimed = await store.claim("r", 100, LEASE, now)
        assert {message.attempt for message in claimed.messages} == {1}
        assert len(claimed.messages) == 10
        proxy.lose_answers(1)
        with suppress(StoreUnavailable):
            await store.settle([ending(one, claimed.token) for one in claimed.messages], now)
        found = await store.find([one.id for one in claimed.messages])
        assert {one.state for one in found if one is not None} == {State.DELIVERED}


async def test_what_is_one_call_of_postgres_is_done_the_plain_way_where_that_fails(
    postgres: PostgresServer,
) -> None:
    harness = PostgresHarness(postgres)
    store = (await harness.open()).messages
    schema = parse_address(harness.url).schema
    postgres.sql(f"DROP FUNCTION {schema}.claim_due, {schema}.deliver_leased")
    now = store.clock.now()
    await store.put([new(f"m{n}", due=now) for n in range(10)], now)
    claim = await store.claim("r", 100, LEASE, now)
    assert len(claim.messages) == 10
    states = await store.settle([ending(one, claim.token) for one in claim.messages], now)
    assert states == [State.DELIVERED] * 10
    await store.close()
    await harness.close()


async def test_postgres_takes_lines_along_that_were_added_during_a_settlement(
    postgres: PostgresServer,
) -> None:
    """A cancel that commits while the settlement waits for it: its line is in the timeline."""
    harness = PostgresHarness(postgres)
    store = (await harness.open()).messages
    schema = parse_address(harness.url).schema
    now = store.clock.now()
    await store.put([new("one", due=now)], now)
    claim = await store.claim("r", 100, LEASE, now)
    async with await psycopg.AsyncConnection.connect(postgres.url) as canceller:
        await canceller.execute(f"SELECT {schema}.cancel('one')".encode())
        settling = asyncio.create_task(store.settle([ending(claim.messages[0], claim.token)], now))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await until(lambda: postgres.sql(waits) != "0")
    assert await settling == [State.DELIVERED]
    lines = [event.event for event in await timeline(store, "one")]
    assert lines.count("cancel_asked") == 1
    assert lines[-1] == "delivered"
    await store.close()
    await harness.close()


async def test_postgres_drops_partitions_that_are_forgotten_whole(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "WIDTH", 10)
    harness = PostgresHarness(postgres)
    store = (await harness.open(retention=0)).messages
    assert isinstance(store, PostgresStore)
    now = store.clock.now()

    async def partitions() -> set[str]:
        def work(tx: Session) -> set[str]:
            return {name for (name,) in tx.query("history_parts")}

        return await store._lane.submit(work)

    before = await partitions()
    await store.put([new(f"m{n}", due=now) for n in range(35)], now)
    claim = await store.claim("r", 50, 60_000, now)
    await store.settle([ending(m, claim.token) for m in claim.messages], now)
    await harness.pass_time(5)
    while await store.purge(store.clock.now(), 20):
        pass
    after = await partitions()
    assert before == {f"history_{n}" for n in range(4)}
    assert after.isdisjoint({"history_0", "history_1", "history_2"})
    assert {"history_4", "history_5", "history_6"} <= after
    assert await store.find([f"m{n}" for n in range(35)]) == [None] * 35
    await store.close()
    await harness.close()


@contextmanager
def small_disk() -> Iterator[Path]:
    """An empty folder of the server's user on a file system of 24 MB."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-disk-"))
    folder.chmod(0o755)
    done = as_root("mount", "-t", "tmpfs", "-o", "size=24m,mode=1777", "tmpfs", str(folder))
    if done.returncode != 0:
        folder.rmdir()
        pytest.skip(f"no right to mount a small disk here: {done.stderr.strip()}")
    try:
        space = folder / "space"
        space.mkdir()
        shutil.chown(space, server_user() or os.getuid())
        yield space
    finally:
        as_root("umount", "-l", str(folder))
        folder.rmdir()


def add_room(disk: Path) -> None:
    """As an operator does."""
    assert as_root("mount", "-o", "remount,size=96m", str(disk.parent)).returncode == 0


def as_root(*command: str) -> subprocess.CompletedProcess[str]:
    sudo = () if os.geteuid() == 0 else ("sudo", "-n")
    return subprocess.run([*sudo, *command], capture_output=True, text=True, check=False)


@pytest.mark.slow
async def test_a_full_disk_refuses_what_it_cannot_keep_and_goes_on_when_there_is_room() -> None:
    with small_disk() as disk, PostgresServer() as server:
        server.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        url = f"{server.url}?options=-c%20default_tablespace%3Dsmall"
        store = await open_store(
            url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
        )
        messages, accepted = store.messages, set[str]()
        now = messages.clock.now()

        async def put(number: int) -> None:
            # random, so that the server cannot compress it
            batch = [new(due=now, payload=os.urandom(50_000)) for _ in range(number)]
            receipts = await messages.put(batch, now)
            accepted.update(receipt.id for receipt in receipts)

        async def fill() -> None:
            while True:
                await put(10)

        with pytest.raises(StoreUnavailable, match=r"No space left|could not extend"):
            await fill()
        assert len(accepted) > 10
        kept = await messages.find(sorted(accepted))
        assert None not in kept, "what was accepted is there"
        large = server.sql("SELECT count(*) FROM penstock.messages")
        assert int(large) == len(accepted), "and nothing else"
        add_room(disk)
        await put(1)
        sent: list[str] = []
        while (claim := await messages.claim("r", 10, 60_000, now)).messages:
            sent += [m.id for m in claim.messages]
            await messages.settle([ending(m, claim.token) for m in claim.messages], now)
        assert sorted(sent) == sorted(accepted)
        await store.close()


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
