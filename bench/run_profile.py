"""What the time of each hot path goes to: `python -m bench profile` → bench/results/profiles/.

py-spy looks at a process that does nothing but the path. What is kept are shares, not speeds:
they hold on a busy machine, too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.load import hammer, post
from bench.profile_text import summary
from bench.profiled import PATHS
from bench.report import RESULTS, console, facts
from bench.run_http import BODY, CONNECTIONS
from bench.run_ticks import WITHIN, ticks_system
from bench.sqlite_limits import folder
from systems.servers.redis import RedisServer

PROFILES = RESULTS / "profiles"
RATE = 400
"""Samples a second."""
ATTACH = 1.5
SECONDS = 5.0


def main() -> None:
    with folder() as at:
        for name in PATHS:
            _profile(f"sqlite-{name}", name, f"sqlite:///{at}/{name}.db", at)
        with RedisServer() as server:
            for name in PATHS:
                server.flush()
                _profile(f"redis-{name}", name, server.url, at)
        _profile_http(at)
        _profile_ticks(at)


def _profile(label: str, path: str, url: str, at: Path) -> None:
    command = [sys.executable, "-m", "bench.profiled", path, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        watching = _watch(process.pid, at / "raw")
        time.sleep(ATTACH)
        process.communicate("go\n")
        watching.wait()
    finally:
        process.kill()
        process.wait()
    _keep(label, f"{label}: {(PATHS[path].__doc__ or '').strip('. ')}", at / "raw")


def _profile_http(at: Path) -> None:
    """POST /v1/messages one by one over 64 connections, as `python -m bench http` has it."""
    command = [sys.executable, "-m", "bench.servers", "penstock", str(at)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        request = post("/v1/messages", BODY)
        hammer(port, request, connections=CONNECTIONS, seconds=0.5)
        watching = _watch(process.pid, at / "raw", "--duration", str(round(SECONDS)))
        hammer(port, request, connections=CONNECTIONS, seconds=SECONDS + ATTACH)
        watching.wait()
    finally:
        process.terminate()
        process.wait()
    _keep("http", "http: POST /v1/messages on SQLite, 64 connections", at / "raw")


def _profile_ticks(at: Path) -> None:
    """The API and the worker of the whole ticks system, as `python -m bench ticks` has it."""
    with ticks_system(WITHIN + ATTACH + 2 * SECONDS) as system:
        generator = system.generate()
        time.sleep(WITHIN + ATTACH)  # from here on as many come due as come in
        watched = {"api": system.api, "worker": system.workers[0]}
        watching = [
            _watch(running.usage.pid, at / name, "--duration", str(round(SECONDS)))
            for name, running in watched.items()
        ]
        for one in watching:
            one.wait()
        generator.ended()
    for name in watched:
        _keep(f"ticks-{name}", f"ticks: the {name} of the whole system, 128 connections", at / name)


def _watch(pid: int, out: Path, *more: str) -> subprocess.Popen[bytes]:
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    command = [spy, "record", "--pid", str(pid), "--format", "raw", "--rate", str(RATE)]
    command += ["--nonblocking", "--output", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _keep(name: str, about: str, raw: Path) -> None:
    if not raw.exists():
        raise RuntimeError("py-spy may not look at another process here (ptrace)")
    PROFILES.mkdir(parents=True, exist_ok=True)
    machine = facts()
    head = f"{machine['when']}, Python {machine['python']}, {machine['cpu']}\n"
    (PROFILES / f"{name}.txt").write_text(head + summary(about, raw.read_text()))
    raw.unlink()
    console.print(f"  [dim]{name}.txt[/dim]")
