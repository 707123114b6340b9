"""SQLite when the power is cut or the disk fails to sync: nothing acknowledged is lost.

A preloaded library stands in for the disk (unsynced.c): it has what was synced, and no more.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
import pytest

from penstock.model.state import State
from penstock.stores.sqlite import disk as disk_module
from tests.faults.disk import LossyDisk, make_disk
from tests.integration.sqlite_files import opened, until
from tests.servers.penstock import run_penstock

pytestmark = pytest.mark.slow

PATIENCE = 300.0
ENOUGH = 300
CUTS = 10


@pytest.fixture
def disk(tmp_path: Path) -> LossyDisk:
    return make_disk(tmp_path)


@dataclass(frozen=True, slots=True)
class Lost:
    """By id, of what a program was answered before the power was cut."""

    acknowledged: int
    lost: tuple[str, ...]
    """Acknowledged, and not there."""
    undone: tuple[str, ...]
    """Settled, and due again."""
    undone_early: tuple[str, ...]
    """Of these, settled before something was asked for that was acknowledged afterwards."""


class Writer:
    """The program on the disk, and what it has said."""

    def __init__(self, disk: LossyDisk, name: str, mutant: str = "", options: str = "") -> None:
        self._said = disk.folder.parent / f"{name}.txt"
        url = f"sqlite:///{disk.folder / 'a.db'}{options}"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.disk_writer", url, name, mutant],
                env=disk.environment,
                stdout=out,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def lines(self) -> list[list[str]]:
        whole = self._said.read_text().rpartition("\n")[0]
        return [line.split(" ", 1) for line in whole.splitlines()]

    def until(self, word: str, number: int) -> None:
        """Return when it has said so this often."""
        end = time.monotonic() + PATIENCE
        while sum(line[0] == word for line in self.lines) < number:
            assert self._process.poll() is None, "the program ended"
            assert time.monotonic() < end, f"not so often: {word}"
            time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)


async def count(path: Path, lines: Sequence[Sequence[str]]) -> Lost:
    """What is there after the power cut, against what the program was answered."""
    acknowledged = {text: None for word, text in lines if word == "put"}
    asked_at = {text: at for at, (word, text) in enumerate(lines) if word == "asked"}
    settled_at = {text: at for at, (word, text) in enumerate(lines) if word == "settled"}
    safe = max((asked_at[one] for one in acknowledged), default=0)
    async with opened(path) as store:
        found = dict(zip(acknowledged, await store.find(list(acknowledged)), strict=True))
        states = dict(zip(settled_at, await store.find(list(settled_at)), strict=True))
        await store.integrity()
    undone = [i for i, m in states.items() if m is None or m.state is not State.DELIVERED]
    return Lost(
        len(acknowledged),
        tuple(i for i, message in found.items() if message is None),
        tuple(undone),
        tuple(i for i in undone if settled_at[i] < safe),
    )


@pytest.mark.parametrize("number", [ENOUGH, ENOUGH * 2 + 37, ENOUGH * 4 + 11])
async def test_a_power_cut_loses_nothing_that_was_acknowledged(
    tmp_path: Path, disk: LossyDisk, number: int
) -> None:
    with Writer(disk, "one") as writer:
        await asyncio.to_thread(writer.until, "put", number)
        writer.kill()
        lines = writer.lines
    verdict = await count(disk.after_power_cut(tmp_path / "after") / "a.db", lines)
    print(verdict)
    assert verdict.acknowledged >= number
    assert verdict.lost == ()
    assert verdict.undone_early == ()


@pytest.mark.parametrize(
    ("mutant", "options"), [("no-sync", ""), ("", "?synchronous=normal")], ids=["no-sync", "normal"]
)
async def test_a_store_that_does_not_wait_for_the_disk_is_seen_to_lose(
    tmp_path: Path, disk: LossyDisk, mutant: str, options: str
) -> None:
    """What the test before this one proves is worth something.

    A checkpoint that was synced just before the cut leaves nothing to lose: then it is cut again.
    """
    lost: tuple[str, ...] = ()
    for cut in range(CUTS):
        with Writer(disk, f"cut{cut}", mutant, options) as writer:
            await asyncio.to_thread(writer.until, "put", ENOUGH)
            writer.kill()
            lines = writer.lines
        after = disk.after_power_cut(tmp_path / f"after{cut}")
        lost = (await count(after / "a.db", lines)).lost
        if lost:
            break
    assert lost


async def test_settlements_that_nobody_waits_for_reach_the_disk_by_themselves(
    tmp_path: Path, disk: LossyDisk
) -> None:
    """Twenty milliseconds later, say the documents; here: without anybody asking for more."""
    assert disk_module.SOON == 0.02
    program = """
        import asyncio, sys
        from penstock.model.message import NewMessage
        from penstock.stores.sqlite import open_store

        async def main() -> None:
            store = (await open_store(
                sys.argv[1], total_partitions=8, retention=10**9, retention_count=10**6
            )).messages
            await store.put([NewMessage(id="m", route="r", key="k", payload=b"1", due=0)], 1)
            claim = await store.claim("r", 5, 600_000, 1)
            print("claimed", len(claim.messages), flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-c", textwrap.dedent(program), f"sqlite:///{disk.folder / 'a.db'}"],
        env=disk.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "claimed 1\n"
            end = time.monotonic() + PATIENCE
            for number in itertools.count():
                after = disk.after_power_cut(tmp_path / f"after{number}")
                async with opened(after / "a.db") as store:
                    (message,) = await store.find(["m"])
                if message is not None and message.state is State.LEASED:
                    break
                assert time.monotonic() < end, "the disk was never told of the claim"
        finally:
            process.kill()


async def test_after_a_failed_fsync_nothing_is_acknowledged_and_the_next_start_mends_the_file(
    tmp_path: Path, disk: LossyDisk
) -> None:
    with Writer(disk, "one") as writer:
        await asyncio.to_thread(writer.until, "put", ENOUGH)
        disk.fail_next_sync()
        assert await asyncio.to_thread(writer.wait) == 0
        before = writer.lines
    refused = [text for word, text in before if word == "failed"]
    assert len(refused) == 4
    assert any("may have been stored" in text for text in refused)
    assert all("fsync failed" in text for text in refused)
    with Writer(disk, "two") as writer:
        await asyncio.to_thread(writer.until, "put", ENOUGH)
        writer.kill()
        lines = before + writer.lines
    verdict = await count(disk.after_power_cut(tmp_path / "after") / "a.db", lines)
    assert verdict.acknowledged >= 2 * ENOUGH
    assert verdict.lost == ()
    assert verdict.undone_early == ()


async def test_a_failed_fsync_that_is_forgotten_is_seen_to_lose(
    tmp_path: Path, disk: LossyDisk
) -> None:
    with Writer(disk, "one", "forget") as writer:
        await asyncio.to_thread(writer.until, "put", ENOUGH)
        disk.fail_next_sync()
        await asyncio.to_thread(writer.until, "put", ENOUGH + 100)
        writer.kill()
        lines = writer.lines
    verdict = await count(disk.after_power_cut(tmp_path / "after") / "a.db", lines)
    assert verdict.lost


CONFIG = """
store = "sqlite:///a.db"
[api]
http = "127.0.0.1:@PORT@"
[routes.default]
sink = "log://"
"""


@pytest.mark.parametrize("command", ["serve", "api", "worker"])
async def test_a_process_whose_disk_fails_acknowledges_no_more_and_ends(
    disk: LossyDisk, command: str
) -> None:
    async with run_penstock(disk.folder, CONFIG, command=command, env=disk.environment) as process:
        if command == "worker":
            await until(lambda: "holds messages" in process.log.read_text())
        disk.fail_next_sync()
        async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE) as client:
            while command != "worker":
                had_failed = disk.has_failed
                try:
                    answer = await client.post("/v1/messages", json={"payload": 1})
                except httpx.TransportError:
                    break
                assert answer.status_code == 503 or not had_failed, "acknowledged after the failure"
                assert answer.status_code == 201 or "fsync failed" in answer.text
        assert await process.ended() == 1
        assert disk.has_failed
        said = process.log.read_text()
        assert "the disk did not keep what was written (fsync failed" in said
        assert "start Penstock again" in said


async def test_a_disk_that_fails_while_the_store_is_closed_is_told_by_an_exception(
    disk: LossyDisk,
) -> None:
    """A claim is synced in the background, here not before the store is closed."""
    program = """
        import asyncio, pathlib, sys
        from penstock import StoreFailed
        from penstock.model.message import NewMessage
        from penstock.stores.sqlite import disk, open_store

        disk.SOON = 3_600

        async def main() -> None:
            url, fail = sys.argv[1:]
            opened = await open_store(url, total_partitions=8, retention=10**9, retention_count=9)
            store = opened.messages
            await store.put([NewMessage(id="m", route="r", key="k", payload=b"1", due=0)], 1)
            await store.claim("r", 5, 600_000, 1)
            pathlib.Path(fail).touch()
            try:
                await store.close()
            except StoreFailed as exc:
                print("raised", exc)
            await store.close()

        asyncio.run(main())
    """
    assert "fsync failed" in await _raised(disk, program)


async def test_a_program_whose_disk_fails_is_told_so_by_an_exception(disk: LossyDisk) -> None:
    program = """
        import asyncio, pathlib, sys
        import penstock

        async def main() -> None:
            url, fail = sys.argv[1:]
            try:
                async with penstock.open(url, routes={"default": print}, worker=True) as engine:
                    await engine.schedule(1, delay="1h")
                    pathlib.Path(fail).touch()
                    await asyncio.sleep(600)
            except penstock.StoreFailed as exc:
                print("raised", exc)

        asyncio.run(main())
    """
    assert "fsync failed" in await _raised(disk, program)


async def _raised(disk: LossyDisk, program: str) -> str:
    """Run a program on the disk; the StoreFailed that it prints."""
    url = f"sqlite:///{disk.folder / 'a.db'}"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(program), url, str(disk.folder / "on-disk/fail")],
        env=disk.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("raised sqlite:///")
    return done.stdout
