"""Opening a SQLite store: addresses, versions, layouts, and what is refused."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError, StoreCorrupt, StoreFailed, StoreUnavailable
from penstock.model.state import State
from penstock.stores.sqlite import health, open_store, schema, wal
from tests.integration.sqlite_files import NOW, execute, new, opened, until


async def test_everything_is_there_after_closing_and_opening(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.put([new("x"), new("y", due=NOW + 1)], NOW)
        await store.claim("r", 1, 1_000, NOW)
        await store.pause("other", True)
    assert not (tmp_path / "a.db-wal").exists()
    async with opened(tmp_path / "a.db") as store:
        x, y = await store.find(["x", "y"])
        assert x is not None
        assert y is not None
        assert (x.state, y.state) == (State.LEASED, State.SCHEDULED)
        assert await store.paused() == {"other"}
        await store.integrity()


async def test_a_file_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait there, whatever time-out it is given."""
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.2, other.execute, ["ROLLBACK"])  # opening holds this thread
    done.start()
    async with opened(tmp_path / "a.db") as store:
        await store.put([new("x")], NOW)
    done.join()
    other.close()


@pytest.mark.parametrize("options", ["", "?writer=thread"])
async def test_closing_answers_what_was_asked_before(tmp_path: Path, options: str) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}{options}"
    opened = await open_store(url, total_partitions=8, retention=1, retention_count=1)
    store = opened.messages
    asked = [asyncio.ensure_future(store.put([new(f"m{n}")], NOW)) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert all(not answer[0].duplicate for answer in await asyncio.gather(*asked))
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.put([new("late")], NOW)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.figures(NOW)
    await store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_store_in_memory_is_gone_when_closed(url: str) -> None:
    for _ in range(2):
        store = await open_store(url, total_partitions=8, retention=1, retention_count=1)
        (receipt,) = await store.messages.put([new("x")], NOW)
        assert not receipt.duplicate
        await store.close()


async def test_a_relative_path_is_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(Path("some name%3F.db")) as store:
        assert (await store.check())["path"] == str(tmp_path / "some name?.db")
    assert (tmp_path / "some name?.db").exists()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///x.db?wrtier=thread", "wrtier"),
        ("sqlite:///x.db?writer=fast", "writer must be one of loop, thread"),
        ("sqlite:///x.db?synchronous=off", "synchronous must be one of"),
        ("sqlite://x.db", "three slashes"),
        ("sqlite:///x.db#part", "%23"),
    ],
)
async def test_a_bad_address_is_told(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        await open_store(url, total_partitions=8, retention=1, retention_count=1)


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="folder"):
        async with opened(tmp_path / "no" / "a.db"):
            pass


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db"):
        pass
    execute(tmp_path / "a.db", "UPDATE meta SET value = '99' WHERE name = 'schema_version'")
    with pytest.raises(ConfigError, match="newer Penstock"):
        async with opened(tmp_path / "a.db"):
            pass


async def test_an_older_schema_is_brought_up_to_date_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db"):
        pass
    version = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", version + 2)
    steps = {
        version: lambda connection: connection.execute("CREATE TABLE second (x)"),
        version + 1: lambda connection: connection.execute("ALTER TABLE second ADD COLUMN y"),
    }
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    async with opened(tmp_path / "a.db") as store:
        assert (await store.check())["schema_version"] == str(version + 2)
    assert execute(tmp_path / "a.db", "SELECT x, y FROM second") == []


async def test_a_step_that_fails_leaves_the_older_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db"):
        pass
    version = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", version + 2)
    steps = {version: lambda connection: connection.execute("CREATE TABLE second (x)")}
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    with pytest.raises(ConfigError, match="too old"):
        async with opened(tmp_path / "a.db"):
            pass
    found = execute(tmp_path / "a.db", "SELECT value FROM meta WHERE name = 'schema_version'")
    assert found == [(str(version),)]


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    execute(tmp_path / "a.db", "CREATE TABLE theirs (x)")
    with pytest.raises(ConfigError, match="another program"):
        async with opened(tmp_path / "a.db"):
            pass
    assert execute(tmp_path / "a.db", "SELECT name FROM sqlite_schema") == [("theirs",)]


async def test_fewer_partitions_are_refused_while_messages_are_held(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", partitions=8) as store:
        await store.put([new("x")], NOW)
    with pytest.raises(ConfigError, match="total_partitions is 4"):
        async with opened(tmp_path / "a.db", partitions=4):
            pass
    async with opened(tmp_path / "a.db", partitions=16):
        pass
    with pytest.raises(ConfigError, match="laid out in 16"):
        async with opened(tmp_path / "a.db", partitions=8):
            pass


async def test_fewer_partitions_are_fine_on_an_empty_store(tmp_path: Path) -> None:
    for partitions in (8, 4):
        async with opened(tmp_path / "a.db", partitions=partitions):
            pass


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"this is not a database, not at all\n" * 200)
    with pytest.raises(StoreCorrupt, match="not what Penstock wrote"):
        async with opened(tmp_path / "a.db"):
            pass


async def test_a_damaged_page_is_found_by_the_integrity_check(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as store:
        await store.put([new(f"m{n}", payload=b"x" * 500) for n in range(500)], NOW)
    with path.open("r+b") as file:  # wipe pages in the middle, leave the schema
        file.seek(40 * 4096)
        file.write(b"\xff" * 4096 * 5)
    async with opened(path) as store:
        with pytest.raises(StoreCorrupt):
            await store.integrity()


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def test_the_files_of_a_store_can_be_read_by_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "CHANGES", 1)
    before = os.umask(0)
    try:
        async with opened(tmp_path / "a.db") as store:
            await store.put([new("x")], NOW)
            modes = modes_in(tmp_path)
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("a.db", "a.db-lock", "a.db-shm", "a.db-wal"), 0o600)


async def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch(0o644)
    (tmp_path / "a.db").chmod(0o644)
    async with opened(tmp_path / "a.db") as store:
        warning = (await store.check())["warning"]
        assert f"{tmp_path / 'a.db'} can be read by other users (mode 0644)" in warning
        assert f"chmod 600 {tmp_path / 'a.db-wal'}" in warning
        for name in modes_in(tmp_path):
            (tmp_path / name).chmod(0o600)
        assert not any("other users" in warning for warning in store.as_store().warnings)


@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_versions_of_sqlite_that_may_corrupt_a_shared_file(
    version: tuple[int, ...], has_it: bool
) -> None:
    assert health.has_reset_bug(version) is has_it


async def test_a_version_of_sqlite_that_may_corrupt_a_shared_file_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db") as store:
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
        warning = (await store.check())["warning"]
        assert "has the WAL-reset bug: Penstock's own processes avoid it" in warning
        assert "(docs/concepts/sqlite.md)" in warning
        assert len(store.as_store().warnings) == 1
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
        assert "warning" not in await store.check()


async def test_a_migration_by_a_newer_program_is_seen_by_one_that_has_the_file_open(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.put([new("x")], NOW)
        execute(tmp_path / "a.db", "UPDATE meta SET value = '99' WHERE name = 'schema_version'")
        with pytest.raises(StoreFailed, match=r"newer Penstock .*schema 99.* nothing of this"):
            await store.put([new("y")], NOW)
        assert "upgrade Penstock" in str(await store.failure())
        for call in (store.put([new("z")], NOW), store.find(["x"]), store.figures(NOW)):
            with pytest.raises(StoreFailed, match="newer Penstock"):
                await call
    assert execute(tmp_path / "a.db", "SELECT id FROM messages") == [("x",)]


async def test_a_migration_that_a_look_at_a_pace_sees_ends_the_process_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        policies = store.as_store().policies
        assert policies is not None
        execute(tmp_path / "a.db", "UPDATE meta SET value = '99' WHERE name = 'schema_version'")
        with pytest.raises(StoreFailed, match="newer Penstock"):
            await policies.allowance("r", NOW)
        assert "upgrade Penstock" in str(await asyncio.wait_for(store.failure(), 30))


async def test_one_process_at_a_time_copies_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "CHANGES", 10)
    other = wal.CheckpointLock(tmp_path / "a.db")
    async with opened(tmp_path / "a.db") as store:
        assert other.take()
        size = (tmp_path / "a.db").stat().st_size
        for step in range(5):
            await store.put([new(f"{step}-{n}") for n in range(100)], NOW)
            await asyncio.sleep(0.01)
        assert (tmp_path / "a.db").stat().st_size == size, "the log was copied beside another"
        other.release()
        await store.put([new("last")], NOW)
        await until(lambda: (tmp_path / "a.db").stat().st_size > size)
        await until(other.take)
        other.close()


async def test_a_log_that_was_copied_as_a_whole_is_not_copied_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "CHANGES", 10)
    monkeypatch.setattr(wal, "START_OVER", 1)
    async with opened(tmp_path / "a.db") as store:
        size = (tmp_path / "a.db").stat().st_size
        copied: list[str] = []
        store._session.connection.set_trace_callback(
            lambda sql: copied.append(sql) if "checkpoint" in sql else None
        )
        await store.put([new(f"m{n}") for n in range(100)], NOW)
        await until(lambda: (tmp_path / "a.db").stat().st_size > size)
        other = wal.CheckpointLock(tmp_path / "a.db")
        await until(other.take)
        other.close()
        assert copied == [], "SQLite before 3.51.3 may corrupt the file"


@pytest.mark.parametrize("options", ["", "?writer=thread"])
async def test_what_another_process_puts_is_announced(tmp_path: Path, options: str) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}{options}"
    heard: asyncio.Queue[str] = asyncio.Queue()
    one, other = [
        await open_store(url, total_partitions=8, retention=1, retention_count=1) for _ in range(2)
    ]
    assert not one.announces()
    one.messages.listen(lambda route, _due: heard.put_nowait(route))
    assert one.announces()
    await other.messages.put([new("x")], NOW)
    assert await heard.get() == "r"
    await one.close()
    await other.close()
