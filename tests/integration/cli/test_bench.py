"""`penstock bench` measures the user's own settings and leaves nothing behind."""

from __future__ import annotations

import importlib
import json
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import measure
from penstock.cli.bench.measure import Plan, Result
from penstock.model.errors import StoreUnavailable
from penstock.settings import Settings
from penstock.version import __version__
from penstock.wiring import scratch_store
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.integration.cli.conftest import Cli

pytestmark = pytest.mark.slow  # it measures for a second at least

SHORT = ("bench", "-n", "200", "-c", "8", "--rate", "50", "--seconds", "1")


def results(out: str) -> list[dict[str, Any]]:
    """One a line."""
    return [json.loads(line) for line in out.splitlines()]


@contextmanager
def benching(folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """`penstock bench` as a process of its own, which does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "bench", *args],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(there: Callable[[], object]) -> None:
    until = time.monotonic() + 300
    while not there():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


def test_every_measurement_has_a_rate_and_says_what_limits_it(cli: Cli, folder: Path) -> None:
    found = results(cli(*SHORT, "--json").out)
    assert [each["what"] for each in found] == [
        "put, 500 a call",
        "put one by one, 8 at once",
        "claim, no-op, settle",
        "lateness at 50/s",
    ]
    assert all(each["rate"] > 0 and each["limit"] for each in found)
    assert found[-1].get("early", 0) == 0
    (measured_on,) = {tuple(each["on"].items()) for each in found}
    assert dict(measured_on) | {"cores": 1, "store": ""} == {
        "store": "",
        "penstock": __version__,
        "python": platform.python_version(),
        "cores": 1,
        "messages": 200,
        "payload": 100,
    }
    assert list(folder.iterdir()) == []


def test_people_get_a_table(cli: Cli) -> None:
    ran = cli(*SHORT)
    assert ran.code == 0
    assert "limited by" in ran.out
    assert "claim, no-op, settle" in ran.out
    assert "200 messages a measurement, 100 bytes each" in ran.out


def test_the_real_store_is_not_touched(cli: Cli, folder: Path) -> None:
    cli("schedule", "--id", "kept", "--delay", "1h")
    before = sorted(path.name for path in folder.iterdir())
    assert cli(*SHORT).code == 0
    assert sorted(path.name for path in folder.iterdir()) == before
    (held,) = cli("list", "--json").json["items"]
    assert held["id"] == "kept"


def test_a_route_that_is_named_gets_every_message(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    (folder / "benched.py").write_text(
        "got = []\n\ndef take(message):\n    got.append(message.id)\n"
    )
    (folder / "penstock.toml").write_text(
        '[routes.push]\nsink = "python:benched:take"\n[limits]\nmin_delay = "1m"\n'
    )
    found = results(cli(*SHORT, "--route", "push", "--json").out)
    assert found[-1]["what"] == "deliver to push"
    assert found[-1].get("failed", 0) == 0
    assert len(set(importlib.import_module("benched").got)) == 200


def test_an_unknown_route_is_told_before_anything_is_measured(cli: Cli) -> None:
    ran = cli(*SHORT, "--route", "nosuch", "--json")
    assert (ran.code, ran.error["field"]) == (1, "route")


def test_a_refused_payload_is_told(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text("[limits]\nmax_payload = 50\n")
    ran = cli(*SHORT, "--json")
    assert (ran.code, ran.error["field"]) == (2, "payload")


def test_a_busy_process_is_told_from_a_slow_store() -> None:
    assert measure._store_limit(0.99) == "this process's core"
    assert measure._store_limit(0.2) == "waiting for the store"


def test_a_slow_sink_is_named() -> None:
    claims = Result(what="", messages=1, rate=1000, cpu=0.9, limit="this process's core")
    assert measure.sink_limit(100, 0.2, claims) == "the sink"
    assert measure.sink_limit(900, 0.9, claims) == "this process's core"
    assert measure.sink_limit(900, 0.6, claims) == "waiting for the store or the sink"


def test_the_store_measured_is_told_without_secrets() -> None:
    secret = Settings(store="redis://me:hidden@127.0.0.1/0")
    assert "hidden" not in measure.context(secret, Plan(100, 100, 1, 1, 1)).store


@pytest.mark.parametrize(
    ("rate", "p99", "kept"),
    [(500, 100, True), (475, 5, True), (474, 5, False), (500, 101, False), (0, None, False)],
)
def test_keeping_up_means_the_rate_asked_for_and_on_time(
    rate: float, p99: float | None, kept: bool
) -> None:
    late = Result(what="", messages=1, rate=rate, cpu=0.1, limit="", p99=p99)
    assert measure.kept_up(late, 500) is kept


def test_the_rate_is_of_the_time_until_the_last_delivery() -> None:
    assert measure.delivered_rate(500, 0, 998, 500) == pytest.approx(500)
    assert measure.delivered_rate(500, 0, 1_998, 500) == pytest.approx(250)
    assert measure.delivered_rate(1, 0, 0, 1) == pytest.approx(1)
    assert measure.delivered_rate(0, 0, 0, 1) == 0


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_store_that_is_away_is_told_in_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", f"redis://127.0.0.1:{free_port()}/0")
    ran = cli(*SHORT, *more)
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert "is away" in line
    assert "left behind" not in line


def in_the_way(settings: Settings) -> None:
    """A folder instead of the store's file: it cannot be unlinked."""
    Path(settings.store.removeprefix("sqlite:///")).mkdir()


async def test_what_cannot_be_erased_is_named(folder: Path) -> None:
    scratch = scratch_store(Settings(store=f"sqlite:///{folder}/jobs.db"))
    with pytest.raises(StoreUnavailable, match=r"jobs-bench-\w+\.db is left behind"):
        async with scratch as settings:
            in_the_way(settings)


async def test_keys_that_cannot_be_erased_are_named() -> None:
    scratch = scratch_store(Settings(store=f"redis://127.0.0.1:{free_port()}/0"))
    with pytest.raises(StoreUnavailable, match=r"bench-\w+-penstock:\* may be left .* is away"):
        async with scratch:
            pass


async def test_what_failed_first_is_not_hidden_by_what_cannot_be_erased() -> None:
    scratch = scratch_store(Settings(store=f"redis://127.0.0.1:{free_port()}/0"))
    with pytest.raises(RuntimeError, match="first") as raised:
        async with scratch:
            raise RuntimeError("first")
    assert "left behind" in raised.value.__notes__[0]


def test_a_sink_that_is_away_is_told_at_once(cli: Cli, folder: Path) -> None:
    hook = f"http://127.0.0.1:{free_port()}/hook"
    (folder / "penstock.toml").write_text(f'[routes.hook]\nsink = "{hook}"\n')
    ran = cli(*SHORT, "--route", "hook")
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert "cannot be reached" in line


@pytest.mark.parametrize(("attempts", "more"), [(1, ()), (8, ("--json",))])
def test_what_is_not_delivered_is_shown_and_fails(
    cli: Cli,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    attempts: int,
    more: tuple[str, ...],
) -> None:
    monkeypatch.setattr(measure, "PATIENCE", 1.0)
    monkeypatch.syspath_prepend(folder)
    (folder / "refusing.py").write_text("def take(message):\n    raise OSError('no')\n")
    (folder / "penstock.toml").write_text(
        f'[routes.push]\nsink = "python:refusing:take"\nmax_attempts = {attempts}\n'
        'backoff = "1m..2m"\n'
    )
    ran = cli(*SHORT, "--route", "push", *more)
    assert ran.code == 1
    if more:
        assert results(ran.out)[-1]["failed"] == results(ran.out)[-1]["messages"] == 200
    else:
        assert "200 of 200 not delivered" in ran.out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_file_behind(folder: Path, number: signal.Signals, code: int) -> None:
    with benching(folder, "-n", "100", "--seconds", "60") as process:
        wait_until(lambda: list(folder.glob("*-bench-*")))
        time.sleep(0.5)
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
    assert process.returncode == code
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []


def test_on_redis_sigterm_leaves_no_key_behind(
    folder: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", redis.url)
    with benching(folder, "-n", "100", "--seconds", "60") as process:
        wait_until(lambda: redis.client.keys("bench-*"))
        time.sleep(0.5)
        process.terminate()
        _, err = process.communicate(timeout=300)
    assert process.returncode == 143
    assert "Traceback" not in err
    assert redis.client.keys("*") == []


def test_on_redis_no_key_stays(
    cli: Cli, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", redis.url)
    redis.client.set("mine", "1")
    found = results(cli(*SHORT, "--json").out)
    assert all(each["rate"] > 0 for each in found)
    assert redis.client.keys("*") == [b"mine"]
