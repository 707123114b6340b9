"""`penstock bench` measures the user's own settings and leaves nothing behind."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import measure
from penstock.cli.bench.measure import Result
from tests.integration.cli.conftest import Cli
from tests.servers.redis import RedisServer

SHORT = ("bench", "-n", "200", "-c", "8", "--rate", "50", "--seconds", "1")


def results(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


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
    assert list(folder.iterdir()) == []


def test_people_get_a_table(cli: Cli) -> None:
    ran = cli(*SHORT)
    assert ran.code == 0
    assert "limited by" in ran.out
    assert "claim, no-op, settle" in ran.out


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
    claims = Result(what="", rate=1000, cpu=0.9, limit="this process's core")
    assert measure.sink_limit(100, claims) == "the sink"
    assert measure.sink_limit(900, claims) == "this process's core"


@pytest.mark.slow
def test_on_redis_no_key_stays(
    cli: Cli, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", redis.url)
    redis.client.set("mine", "1")
    found = results(cli(*SHORT, "--json").out)
    assert all(each["rate"] > 0 for each in found)
    assert redis.client.keys("*") == [b"mine"]
