"""SQLite when the disk is full, read-only or locked, after crashes, and under a long load."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import httpx
import pytest

from penstock.model.errors import StoreUnavailable
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.stores.sqlite import group as group_module
from penstock.stores.sqlite import wal as wal_module
from penstock.stores.sqlite.schema import SCHEMA_VERSION
from tests.integration.sqlite_files import (
    ENVIRONMENT,
    NOW,
    deliver,
    execute,
    locked,
    new,
    opened,
)
from tests.servers.penstock import run_penstock


async def test_a_full_disk_accepts_nothing_it_did_not_keep(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.put([new("before")], NOW)
        (pages,) = store._session.connection.execute("PRAGMA page_count").fetchone()
        store._session.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        fits, large, *others = await asyncio.gather(
            store.put([new("fits")], NOW),
            store.put([new(f"large{n}", payload=b"x" * 8_000) for n in range(50)], NOW),
            *(store.put([new(f"small{n}")], NOW) for n in range(3)),
            return_exceptions=True,
        )
        assert isinstance(large, StoreUnavailable)
        assert "disk is full" in large.message
        assert isinstance(fits, list), "one request that cannot be kept must not fail the others"
        assert all(isinstance(other, list) for other in others)
        assert await store.find([f"large{n}" for n in range(50)]) == [None] * 50
        store._session.connection.execute("PRAGMA max_page_count = 1000000")
        assert not (await store.put([new("after")], NOW))[0].duplicate
        await store.integrity()


async def test_a_store_without_room_for_more_is_not_healthy(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        (pages,) = store._session.connection.execute("PRAGMA page_count").fetchone()
        store._session.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.check()
        store._session.connection.execute("PRAGMA max_page_count = 1000000")
        assert int((await store.check())["disk_free"]) > 0
        assert execute(tmp_path / "a.db", "SELECT 1 FROM meta WHERE name = 'probe'") == []


async def test_a_disk_as_good_as_full_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write-ahead log that starts over has room for a while on a disk that has none."""
    real = os.statvfs(tmp_path)
    async with opened(tmp_path / "a.db") as store:
        full = os.statvfs_result((*real[:3], 3, 3, *real[5:]))
        monkeypatch.setattr(os, "statvfs", lambda _: full)
        with pytest.raises(StoreUnavailable, match=r"disk is full: [\d,]+ bytes are left"):
            await store.check()


async def test_health_writes_only_now_and_then(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.check()
        before = store._session.connection.total_changes
        for _ in range(5):
            await store.check()
        assert store._session.connection.total_changes == before


_FILL = """
    import asyncio, os, resource, signal, sys
    from penstock.model.errors import StoreUnavailable
    from penstock.model.message import NewMessage
    from penstock.stores.sqlite import open_store

    async def main() -> None:
        store = (await open_store(
            sys.argv[1], total_partitions=8, retention=10**9, retention_count=10**6
        )).messages
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
        for batch in range(200):
            news = [
                NewMessage(id=f"{batch}-{n}", route="r", key="k", payload=b"x" * 1000, due=n)
                for n in range(100)
            ]
            try:
                await store.put(news, 0)
            except StoreUnavailable as exc:
                print("refused", exc.message)
                break
            print("kept", batch)
        sys.stdout.flush()
        os._exit(0)

    asyncio.run(main())
"""


@pytest.mark.slow
def test_a_file_system_out_of_room_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes every write past a size fail, as a full disk does."""
    path = tmp_path / "a.db"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FILL), f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("refused")
    kept = sum(line.startswith("kept") for line in lines)
    assert kept > 0
    assert execute(path, "SELECT count(*) FROM messages") == [(kept * 100,)]


async def test_a_store_turned_read_only_refuses_and_recovers(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        store._session.connection.execute("PRAGMA query_only = on")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await store.put([new("x")], NOW)
        assert await store.find(["x"]) == [None]
        store._session.connection.execute("PRAGMA query_only = off")
        assert not (await store.put([new("x")], NOW))[0].duplicate


async def test_a_caller_that_has_waited_for_a_lock_long_enough_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "LOCK_WAIT", 0.05)
    async with opened(tmp_path / "a.db") as store:
        with locked(tmp_path / "a.db"):
            with pytest.raises(StoreUnavailable, match=r"a\.db: another process keeps the file"):
                await store.put([new("x")], NOW)
            with pytest.raises(StoreUnavailable, match="stop it or try again"):
                await store.check()
        assert not (await store.put([new("x")], NOW))[0].duplicate
        assert (await store.check())["schema_version"] == str(SCHEMA_VERSION)


async def test_the_loop_goes_on_while_another_process_holds_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.put([new(f"m{n}") for n in range(20)], NOW)
        claim = await store.claim("r", 10, 1_000, NOW)
        with locked(tmp_path / "a.db"):
            puts = [asyncio.ensure_future(store.put([new(f"n{n}")], NOW)) for n in range(50)]
            extended = asyncio.ensure_future(store.extend([claim.token], NOW + 60_000))
            answered = 0
            while answered < 20 and not extended.done():
                found = await store.find(["m0", "n0"])
                assert [message is not None for message in found] == [True, False]
                answered += 1
                await asyncio.sleep(0.001)
            assert answered == 20, "reads are answered while writes wait"
        receipts = await asyncio.gather(*puts)
        await extended
        assert [receipt.duplicate for (receipt,) in receipts] == [False] * 50
        assert await store.reap(NOW + 30_000, 100) == [], "the lease was extended"
        assert await deliver(store, claim) == [State.DELIVERED] * 10
        assert (await store.figures(NOW)).states[State.SCHEDULED] == 60


async def test_closing_waits_for_writes_that_wait_for_a_lock(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        with locked(tmp_path / "a.db"):
            put = asyncio.ensure_future(store.put([new("x")], NOW))
            assert await store.find(["x"]) == [None]
            closing = asyncio.ensure_future(store.close())
            await asyncio.sleep(0.01)
            assert not closing.done()
        assert not (await put)[0].duplicate
        await closing
    assert execute(tmp_path / "a.db", "SELECT id FROM messages") == [("x",)]


async def test_opening_a_locked_file_does_not_stop_the_loop(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db"):
        pass
    with locked(tmp_path / "a.db"):
        manager = opened(tmp_path / "a.db")
        opening = asyncio.ensure_future(manager.__aenter__())
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not opening.done()
    await opening
    await manager.__aexit__(None, None, None)


@pytest.mark.slow
async def test_health_is_answered_while_another_process_holds_the_file(tmp_path: Path) -> None:
    config = 'store = "sqlite:///a.db"\n[api]\nhttp = "127.0.0.1:@PORT@"\n'
    async with (
        run_penstock(tmp_path, config) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        message = {"id": "late", "payload": 1}
        with locked(tmp_path / "a.db"):
            put = asyncio.ensure_future(client.post("/v1/messages", json=message))
            answered = 0
            while not put.done():
                assert (await client.get("/healthz")).status_code == 200
                answered += 1
            assert answered >= 20, "health is answered all the while the put waits"
            refused = await put
            assert refused.status_code == 503
            assert "another process keeps the file locked" in refused.text
            again = asyncio.ensure_future(client.post("/v1/messages", json=message))
            assert (await client.get("/healthz")).status_code == 200
        assert (await again).status_code == 201


@pytest.mark.parametrize("options", ["", "?writer=thread"])
async def test_one_bad_request_does_not_fail_its_neighbours(tmp_path: Path, options: str) -> None:
    async with opened(tmp_path / "a.db", options) as store:
        good, bad, also_good = await asyncio.gather(
            store.put([new("a")], NOW),
            store.put([new("b", due=2**70)], NOW),  # no integer of SQLite holds this
            store.put([new("c")], NOW),
            return_exceptions=True,
        )
        assert isinstance(bad, OverflowError)
        assert isinstance(good, list)
        assert isinstance(also_good, list)
        found = await store.find(["a", "b", "c"])
        assert [message is not None for message in found] == [True, False, True]


async def test_a_request_rolled_back_wakes_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        heard: list[int] = []
        store.listen(lambda _, due: heard.append(due))
        with pytest.raises(OverflowError):
            await store.put([new("a", due=NOW - 5), new("b", due=2**70)], NOW)
        await store.put([new("c")], NOW)
        assert heard == [NOW]


async def test_a_claim_that_finds_nothing_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.put([new("later", due=NOW + 10)], NOW)
        log = tmp_path / "a.db-wal"
        before = log.read_bytes()
        for _ in range(20):
            assert (await store.claim("r", 10, 1_000, NOW)).next_due == NOW + 10
            assert await store.reap(NOW, 10) == []
            assert await store.purge(NOW, 10) == 0
        assert log.read_bytes() == before


async def test_puts_of_one_turn_share_a_transaction(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        commits: list[str] = []
        store._session.connection.set_trace_callback(
            lambda sql: commits.append(sql) if sql == "COMMIT" else None
        )
        await asyncio.gather(*(store.put([new(f"m{n}")], NOW) for n in range(64)))
        assert len(commits) == 1
        await asyncio.gather(*(store.put([new(f"n{n}")], NOW) for n in range(1_200)))
        assert len(commits) - 1 == 2  # a thousand rows a transaction


async def test_two_stores_on_one_file_share_the_work(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as one, opened(tmp_path / "a.db") as two:
        await one.put([new(f"m{n:03}") for n in range(100)], NOW)
        (receipt,) = await two.put([new("m000")], NOW)
        assert receipt.duplicate
        claims = [await store.claim("r", 7, 1_000, NOW) for store in (one, two) * 8]
        taken = [m.id for claim in claims for m in claim.messages]
        assert len(taken) == len(set(taken)) == 100
        assert len({claim.token for claim in claims if claim.messages}) == 15
        await two.pause("r", True)
        await one.put([new("paused")], NOW)
        assert (await one.claim("r", 7, 1_000, NOW)).messages == ()
        assert len((await one.search(Filter(), None, 1_000)).items) == 101


_SHARE = """
    import asyncio, sys
    from penstock.model.message import NewMessage
    from penstock.model.outcome import Settlement
    from penstock.model.state import State
    from penstock.stores.sqlite import open_store

    async def main() -> None:
        store = (await open_store(
            sys.argv[1], total_partitions=8, retention=10**9, retention_count=10**6
        )).messages
        async def step(number: int) -> None:
            news = [
                NewMessage(id=i, route="r", key=i, payload=b"1", due=0)
                for i in (f"{sys.argv[2]}-{number}", f"both-{number}")
            ]
            for receipt in await store.put(news, 1):
                print("put", receipt.id, receipt.duplicate)
            await take(3)

        async def take(limit: int) -> int:
            claim = await store.claim("r", limit, 10**6, 1)
            for message in claim.messages:
                print("took", message.id)
            done = {"token": claim.token, "state": State.DELIVERED, "event": "delivered"}
            await store.settle([Settlement(message=m, **done) for m in claim.messages], 1)
            return len(claim.messages)

        for number in range(60):
            await step(number)
        while await take(50):
            pass
        await store.close()

    asyncio.run(main())
"""


@pytest.mark.slow
def test_two_processes_on_one_file_neither_lose_nor_share_a_message(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_SHARE), f"sqlite:///{tmp_path / 'a.db'}", name],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for name in ("one", "two")
    ]
    outputs = [process.communicate(timeout=90)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    lines = [line for output in outputs for line in output]
    taken = [line for line in lines if line.startswith("took")]
    assert len(taken) == len(set(taken)) == 180
    new_both = [line for line in lines if "both-" in line and line.endswith("False")]
    assert len(new_both) == len(set(new_both)) == 60


@pytest.mark.slow
@pytest.mark.parametrize("options", ["?synchronous=normal", "?synchronous=normal&writer=thread"])
async def test_the_write_ahead_log_stays_bounded_under_constant_writing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    options: str,
) -> None:
    monkeypatch.setattr(wal_module, "CHANGES", 500)
    monkeypatch.setattr(wal_module, "START_OVER", 200)
    largest = written = 0
    with caplog.at_level(logging.WARNING):
        async with opened(tmp_path / "a.db", options) as store:
            for step in range(1_000):  # a log without bounds is always larger than what was put
                news = [new(f"{step:05}-{n:03}", payload=b"x" * 400) for n in range(200)]
                await store.put(news, NOW)
                written += sum(len(message.payload) for message in news)
                largest = max(largest, (tmp_path / "a.db-wal").stat().st_size)
                if step >= 100 and largest < written / 2:
                    break
    assert largest < written / 2
    assert not caplog.records


@pytest.mark.slow
async def test_memory_is_flat_however_many_messages_go_through(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", "?synchronous=normal", retention_count=100) as store:

        async def round_trip(number: int) -> None:
            await store.put([new(f"{number}-{n}") for n in range(100)], NOW)
            await deliver(store, await store.claim("r", 100, 1_000, NOW))
            await store.purge(NOW, 500)

        for number in range(20):
            await round_trip(number)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(20, 120):
                await round_trip(number)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert grown < 500_000


async def test_what_a_crash_leaves_opens_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.put([new(f"m{n}") for n in range(300)], NOW)
        claim = await store.claim("r", 100, 1_000, NOW)
        await deliver(store, claim)
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"a.db{suffix}", tmp_path / f"b.db{suffix}")
    async with opened(tmp_path / "b.db") as store:
        figures = await store.figures(NOW)
        assert (figures.states[State.SCHEDULED], figures.states[State.DELIVERED]) == (200, 100)
        assert await deliver(store, claim) == [None] * 100
        await store.integrity()


async def test_a_log_cut_in_the_middle_keeps_whole_transactions(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        for step in range(20):
            await store.put([new(f"{step:02}-{n}") for n in range(10)], NOW)
        shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
        whole = (tmp_path / "a.db-wal").read_bytes()
    (tmp_path / "b.db-wal").write_bytes(whole[: len(whole) * 2 // 3])
    async with opened(tmp_path / "b.db") as store:
        found = await store.search(Filter(), None, 1_000)
        batches = {m.id.partition("-")[0] for m in found.items}
        assert 0 < len(batches) < 20
        assert len(found.items) == 10 * len(batches)
        await store.integrity()


async def test_purge_keeps_the_newest_by_count(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", retention_count=30) as store:
        for step in range(5):
            await store.put([new(f"{step}-{n:02}") for n in range(20)], NOW)
            await deliver(store, await store.claim("r", 100, 1_000, NOW))
        purged = [await store.purge(NOW, 25) for _ in range(4)]
        assert purged == [25, 25, 20, 0]
        known = await store.search(Filter(), None, 1_000)
        assert {m.id[0] for m in known.items} == {"3", "4"}
