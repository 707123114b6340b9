"""The runner: order of start and stop, sources that end, deaths, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from systems import provide, run
from systems.output import Output
from systems.run import Options, Running, run_system
from systems.servers.redis import RedisServer
from systems.spec import parse_spec
from systems.verdict import Reports, Row, Verdict

pytestmark = pytest.mark.slow

CHILD = Path(__file__).with_name("child.py")
SOURCE = "world = true\nsource = true\nreport = true"
WORLD = "world = true\nreport = true"


def process(name: str, how: str, notes: Path, *more: str) -> str:
    lines = [f'name = "{name}"', f'run = "python child.py {name} {how} {notes}"', *more]
    return "\n".join(["[[process]]", *lines, ""])


class Given:
    """A system of tiny processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "example"
        self.folder.mkdir()
        shutil.copy(CHILD, self.folder)
        self.notes = folder / "notes"
        self.notes.touch()
        self.text = ""
        self.judged: list[Reports] = []
        self.system: Running | None = None

    def has(self, name: str, how: str, *more: str) -> None:
        more = (f'ready = "log: {name} is ready"', *more) if "once = true" not in more else more
        self.text += process(name, how, self.notes, *more)

    async def run(
        self, seconds: float | None = None, *, holds: bool = True, running: bool = False
    ) -> int:
        output = Output()
        options = Options(self.folder, seconds, running)
        self.system = Running("test", parse_spec(self.text), options, output)

        def judge(reports: Reports) -> Verdict:
            self.judged.append(reports)
            return Verdict([Row("in", "1"), Row("lost", "0", holds=holds)])

        async def drained(_: Running) -> bool:
            return True

        code = await run_system(self.system, judge, drained, output)
        assert not self.system.folder.exists()
        assert not [child for child in self.system.children if child.running]
        return code

    @property
    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines()


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    monkeypatch.setattr(run, "LOOK_AGAIN", 0.01)
    return Given(tmp_path)


async def test_it_starts_in_order_and_stops_sources_first_and_the_rest_backwards(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.has("init", "ends", "once = true")
    given.has("api", "stays")
    given.has("worker", "stays", "report = true")
    given.has("world", "stays", WORLD)
    given.has("load", "stays", SOURCE)
    assert await given.run(0.1) == 0
    starts = [f"{name} starts" for name in ("init", "api", "worker", "world", "load")]
    stops = ["load SIGINT", "world SIGINT", "worker SIGTERM", "api SIGTERM"]
    assert given.noted == starts + stops
    (reports,) = given.judged
    assert reports == {name: [{"name": name}] for name in ("worker", "world", "load")}
    said = capsys.readouterr().out
    assert "api     | api is ready\n" in said
    assert "worker  | Handled things/s: 7\n" in said
    assert '{"name": "init"}' in said
    assert '{"name": "load"}' not in said, "reports are for the verdict"
    assert said.endswith("  in    1\n  lost  0  ok\ntest: the verdict holds\n")
    assert [line.split()[0] for line in said.splitlines() if line.endswith(" MB")] == [
        *("api", "worker", "world", "load")
    ]


async def test_it_ends_when_every_source_has_ended_by_itself(given: Given) -> None:
    given.has("api", "stays")
    given.has("load", "ends", SOURCE)
    assert await given.run() == 0
    assert given.noted == ["api starts", "load starts", "api SIGTERM"]


async def test_a_verdict_that_does_not_hold_is_exit_1(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.has("load", "ends", SOURCE)
    assert await given.run(holds=False) == 1
    assert "lost  0  FAILED\ntest: the verdict DOES NOT HOLD" in capsys.readouterr().out


async def test_a_process_that_dies_is_named_with_its_last_words(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.has("load", "stays", SOURCE)
    given.text += process("victim", "dies", given.notes)
    assert await given.run() == 1
    said = capsys.readouterr().out
    assert "victim died (exit code 3); its last lines:" in said
    assert "    the last words" in said
    assert not given.judged
    assert given.noted[-1] == "load SIGINT", "the others still end in order"


async def test_one_that_dies_before_it_is_ready_ends_the_start(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.has("api", "stays")
    given.text += process("victim", "dies", given.notes, 'ready = "log: never said"')
    given.has("load", "stays", SOURCE)
    assert await given.run() == 1
    assert "victim died (exit code 3)" in capsys.readouterr().out
    assert "load starts" not in given.noted


async def test_nothing_starts_after_one_that_should_have_run_to_its_end(given: Given) -> None:
    given.has("init", "dies", "once = true")
    given.has("load", "stays", SOURCE)
    assert await given.run() == 1
    assert given.noted == ["init starts"]


async def test_a_source_that_gave_no_report_is_a_failure(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.text += f'[[process]]\nname = "load"\nrun = "python -c pass"\n{SOURCE}\n'
    assert await given.run() == 1
    assert "load gave no report" in capsys.readouterr().out


async def test_one_that_does_not_stop_is_killed_and_named(
    given: Given, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "STOP_PATIENCE", 0.2)
    given.has("api", "stubborn")
    given.has("load", "ends", SOURCE)
    assert await given.run() == 1
    assert "api did not stop" in capsys.readouterr().out


async def test_ctrl_c_stops_in_order_and_gives_the_verdict(given: Given) -> None:
    given.has("api", "stays")
    given.has("load", "stays", SOURCE)

    running = asyncio.ensure_future(given.run())
    await asyncio.sleep(0)
    assert given.system is not None
    await given.system.everything_runs.wait()
    signal.raise_signal(signal.SIGINT)
    assert await running == 0
    assert given.noted[-2:] == ["load SIGINT", "api SIGTERM"]


async def test_ctrl_c_twice_ends_everything_at_once(tmp_path: Path) -> None:
    """In a process of its own, since it ends that too."""
    given = Given(tmp_path)
    given.has("api", "stubborn")
    given.has("load", "stubborn", SOURCE)
    (tmp_path / "processes.toml").write_text(given.text)
    program = (
        "import asyncio, sys; from pathlib import Path; from systems.output import Output;"
        "from systems.run import *; from systems.spec import parse_spec;"
        f"at = Path({str(tmp_path)!r}); output = Output();"
        "spec = parse_spec((at / 'processes.toml').read_text())\n"
        "async def main():\n"
        "    system = Running('test', spec, Options(at / 'example'), output)\n"
        "    await run_system(system, None, None, output)\n"
        "asyncio.run(main())"
    )
    root = Path(__file__).parents[3]
    runner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), cwd=root, stdout=asyncio.subprocess.PIPE
    )
    assert runner.stdout is not None
    said = await asyncio.wait_for(runner.stdout.readuntil(b"everything runs"), 60)
    children = psutil.Process(runner.pid).children(recursive=True)
    assert len(children) == 2
    runner.send_signal(signal.SIGINT)
    said += await asyncio.wait_for(runner.stdout.readuntil(b"once more ends it at once"), 60)
    runner.send_signal(signal.SIGINT)
    said += await asyncio.wait_for(runner.stdout.read(), 60)
    assert b"stopped at once" in said
    assert await asyncio.wait_for(runner.wait(), 60) == 130
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert (len(gone), alive) == (2, [])


async def test_a_server_that_runs_on_its_standard_port_is_used_and_left_alone(
    given: Given,
    redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(provide, "STANDARD", {"redis": redis.port})
    given.text = 'servers = ["redis"]\n'
    given.has("load", "ends", SOURCE, 'env = { STORE = "{redis_url}?prefix=ticks{suffix}" }')
    assert await given.run(running=True) == 0
    assert redis.running
    assert "redis answers at" in (said := capsys.readouterr().out)
    assert "running already, left as it is" in said
    assert given.system is not None
    (child,) = given.system.children
    assert re.fullmatch(
        rf"redis://127\.0\.0\.1:{redis.port}/0\?prefix=ticks-[0-9a-f]+", child.command.env["STORE"]
    )


async def test_an_own_server_is_started_and_gone_after(given: Given) -> None:
    given.text = 'servers = ["redis"]\n'
    given.has("load", "ends", SOURCE, 'env = { STORE = "redis://{redis}/0?prefix=ticks{suffix}" }')
    assert await given.run() == 0
    assert given.system is not None
    (child,) = given.system.children
    address = given.system.words["redis"]
    assert child.command.env["STORE"] == f"redis://{address}/0?prefix=ticks"
    with socket.socket() as line:
        assert line.connect_ex(("127.0.0.1", int(given.system.words["redis_port"]))) != 0


async def test_a_server_that_dies_ends_the_run(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    given.text = 'servers = ["redis"]\n'
    given.has("load", "stays", SOURCE)
    running = asyncio.ensure_future(given.run())
    await asyncio.sleep(0)
    assert given.system is not None
    await given.system.everything_runs.wait()
    (server,) = given.system.servers
    assert server.own is not None
    os.kill(server.own.pid, signal.SIGKILL)
    assert await running == 1
    assert "redis died; its last lines:" in capsys.readouterr().out
