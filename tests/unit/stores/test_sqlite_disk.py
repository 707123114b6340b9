"""Who waits for the disk: the loop, or only those who asked for something durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.model.message import NewMessage
from penstock.stores import sqlite
from penstock.stores.sqlite.address import parse_address
from penstock.stores.sqlite.disk import Disk, Told
from penstock.stores.sqlite.group import FEW_ROWS, GroupCommit
from penstock.stores.sqlite.schema import connect
from penstock.stores.sqlite.session import Session
from penstock.stores.sqlite.store import LOST_MS, SOON_MS
from penstock.testing.clock import ManualClock

FULL, NORMAL = 2, 1


class SlowDisk(Disk):
    """Is told, and has it when the test says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.told = 0
        self.asked: list[Told] = []

    def tell(self, told: Told | None = None) -> None:
        self.told += 1
        if told is not None:
            self.asked.append(told)

    def answer(self, error: OSError | None = None) -> None:
        for told in self.asked:
            told(error)
        self.asked.clear()


class Rig:
    """A group commit on a file, with a table to write to."""

    def __init__(self, path: Path) -> None:
        self.session = Session(connect(parse_address(f"sqlite:///{path}")), 1)
        self.session.connection.execute("PRAGMA journal_mode = wal")
        self.session.connection.execute("CREATE TABLE kept (number INTEGER)")
        self.disk = SlowDisk(path)
        self.something_is_due = True
        self.group = GroupCommit(
            self.session,
            "it",
            thread=False,
            committed=lambda _: None,
            disk=self.disk,
            busy=lambda: self.something_is_due,
        )

    def keep(self, number: int, *, durable: bool = True, rows: int = 1) -> asyncio.Future[int]:
        def work(session: Session) -> int:
            session.connection.execute("INSERT INTO kept VALUES (?)", (number,))
            return number

        return self.group.submit(work, rows=rows, durable=durable)

    def waits_inline(self) -> bool:
        (level,) = self.session.connection.execute("PRAGMA synchronous").fetchone()
        assert level in (FULL, NORMAL)
        return bool(level == FULL)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "it.db")
    yield rig
    await rig.group.close()
    rig.session.connection.close()


async def test_what_nobody_waits_for_is_answered_while_the_disk_is_still_at_it(rig: Rig) -> None:
    assert await rig.keep(1, durable=False) == 1
    assert rig.disk.told == 1
    assert not rig.waits_inline()


async def test_a_put_beside_something_due_is_answered_when_it_is_on_the_disk(rig: Rig) -> None:
    put, claim = rig.keep(1), rig.keep(2, durable=False)
    assert await claim == 2
    assert not put.done()
    rig.disk.answer()
    assert await put == 1


async def test_a_put_while_nothing_is_due_waits_for_the_disk_inline(rig: Rig) -> None:
    rig.something_is_due = False
    assert await rig.keep(1) == 1
    assert rig.disk.told == 0
    assert rig.waits_inline()


async def test_many_rows_wait_for_the_disk_inline_whatever_is_due(rig: Rig) -> None:
    assert await rig.keep(1, rows=FEW_ROWS + 1) == 1
    assert rig.waits_inline()


async def test_the_loop_waits_and_goes_on_as_often_as_it_changes(rig: Rig) -> None:
    """A statement that was prepared before would change nothing the second time."""
    for due in (True, False, True, False):
        rig.something_is_due = due
        put = rig.keep(1)
        await rig.keep(2, durable=False)
        rig.disk.answer()
        await put
        assert rig.waits_inline() is not due


async def test_a_put_that_the_disk_did_not_take_is_not_accepted(rig: Rig) -> None:
    put, claim = rig.keep(1), rig.keep(2, durable=False)
    await claim
    rig.disk.answer(OSError("no such disk"))
    with pytest.raises(StoreUnavailable, match="no such disk"):
        await put


async def test_a_claim_that_found_nothing_does_not_trouble_the_disk(rig: Rig) -> None:
    await rig.keep(1, durable=False)
    told = rig.disk.told
    await rig.group.submit(lambda _: None, durable=False)
    assert rig.disk.told == told


async def test_everything_committed_while_the_disk_is_busy_is_in_its_next_round(
    tmp_path: Path,
) -> None:
    (tmp_path / "it.db-wal").write_bytes(b"log")
    disk = Disk(tmp_path / "it.db")
    rounds: list[str] = []

    def told(name: str, error: BaseException | None) -> None:
        rounds.append(f"{name} {error}")

    for name in ("first", "second", "third"):
        disk.tell(partial(told, name))
    assert rounds == []
    await disk.close()
    assert rounds == ["first None", "second None", "third None"]
    await disk.close()


class CountedDisk(Disk):
    """Counts how often the log is synced."""

    rounds = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.synced = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _open(self) -> None:
        """There is no file."""

    def _write(self) -> None:
        self.rounds += 1
        self._loop.call_soon_threadsafe(self.synced.set)


async def test_what_nobody_waits_for_reaches_the_disk_soon_all_of_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stores.sqlite.disk.SOON", 0.001)
    disk = CountedDisk(tmp_path / "it.db")
    for _ in range(5):
        disk.tell()
    assert disk.rounds == 0
    await disk.synced.wait()
    await disk.close()
    assert disk.rounds == 1


async def test_whoever_waits_has_the_disk_told_at_once_with_all_there_is(tmp_path: Path) -> None:
    disk = CountedDisk(tmp_path / "it.db")
    answered = asyncio.Event()
    disk.tell()
    disk.tell(lambda _: answered.set())
    await answered.wait()
    await disk.close()
    assert disk.rounds == 1


async def test_what_nobody_waits_for_is_on_the_disk_when_the_store_is_closed(
    tmp_path: Path,
) -> None:
    disk = CountedDisk(tmp_path / "it.db")
    disk.tell()
    await disk.close()
    assert disk.rounds == 1


async def test_a_log_that_is_gone_is_told_to_whoever_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path / "it.db")
    told: list[BaseException | None] = []
    disk.tell(told.append)
    await disk.close()
    assert isinstance(told[0], FileNotFoundError)
    assert "cannot be opened" in caplog.text


@pytest.mark.parametrize(
    ("waits", "is_told"),
    [(SOON_MS - 1, True), (SOON_MS, False), (-LOST_MS + 1, True), (-LOST_MS, False)],
)
async def test_a_store_knows_from_its_claims_whether_something_is_due_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: int, is_told: bool
) -> None:
    told: list[Told | None] = []

    class Watched(Disk):
        def tell(self, callback: Told | None = None) -> None:
            told.append(callback)
            super().tell(callback)

    monkeypatch.setattr("penstock.stores.sqlite.store.Disk", Watched)
    clock = ManualClock()
    store = (
        await sqlite.open_store(
            f"sqlite:///{tmp_path / 'it.db'}",
            total_partitions=8,
            retention=1_000,
            retention_count=1_000,
            clock=clock,
        )
    ).messages

    async def put(name: str) -> None:
        due = clock.now() + 2_000
        message = NewMessage(id=name, route="r", key=name, payload=b"{}", due=due)
        await store.put([message], clock.now())

    await put("first")
    claim = await store.claim("r", 10, 1_000, clock.now())
    assert claim.next_due is not None
    clock.jump(claim.next_due - waits - clock.now())
    assert not told
    await put("second")
    assert bool(told) is is_told
    await store.close()
