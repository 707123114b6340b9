"""Opening a SQLite store: addresses, versions, layouts, and what is refused."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError, StoreCorrupt, StoreUnavailable
from penstock.model.state import State
from penstock.stores.sqlite import open_store, schema
from tests.integration.sqlite_files import NOW, execute, new, opened


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
    store = await open_store(url, total_partitions=8, retention=1, retention_count=1)
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
        (receipt,) = await store.put([new("x")], NOW)
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
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 4)
    steps = {
        2: lambda connection: connection.execute("CREATE TABLE second (x)"),
        3: lambda connection: connection.execute("ALTER TABLE second ADD COLUMN y"),
    }
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    async with opened(tmp_path / "a.db") as store:
        assert (await store.check())["schema_version"] == "4"
    assert execute(tmp_path / "a.db", "SELECT x, y FROM second") == []


async def test_a_step_that_fails_leaves_the_older_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a.db"):
        pass
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 4)
    steps = {2: lambda connection: connection.execute("CREATE TABLE second (x)")}
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    with pytest.raises(ConfigError, match="too old"):
        async with opened(tmp_path / "a.db"):
            pass
    version = execute(tmp_path / "a.db", "SELECT value FROM meta WHERE name = 'schema_version'")
    assert version == [("2",)]


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
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096 * 5)
    async with opened(path) as store:
        with pytest.raises(StoreCorrupt):
            await store.integrity()
