"""`penstock monitor` over a store, and what it says when there is nothing to watch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.contrib.sms.settings import NAMES, SmsSettings
from tests.integration.cli.conftest import Cli


@pytest.fixture(autouse=True)
def no_sms_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_the_store_is_watched_look_after_look(cli: Cli, folder: Path) -> None:
    cli("schedule", "default", "--payload", "1", "--delay", "1h")
    ran = cli("monitor", "--json", "--updates", "2", "--update-interval", "0.05")
    looks = [json.loads(line) for line in ran.out.splitlines()]
    assert [look["engine"]["states"]["scheduled"] for look in looks] == [1, 1]
    assert [(look["sms"], look["errors"]) for look in looks] == [(None, [])] * 2


def test_people_get_a_line_a_look(cli: Cli, folder: Path) -> None:
    cli("schedule", "default", "--payload", "1", "--delay", "1h")
    ran = cli("monitor", "--updates", "1")
    assert "engine: scheduled 1  leased 0  delivered 0" in ran.out


def test_an_sms_system_that_is_away_is_said_beside_the_engine(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("schedule", "default", "--payload", "1", "--delay", "1h")
    monkeypatch.setenv("REDIS_HOST", "127.0.0.1:1")
    ran = cli("monitor", "--updates", "1")
    assert "engine: scheduled 1" in ran.out
    assert "Redis does not answer" in ran.out


def test_nothing_to_watch_is_an_error(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.contrib.sms.monitor.read_sms_settings", _nowhere)
    ran = cli("monitor", "--updates", "1")
    assert ran.code == 1
    assert "nothing to watch: nothing to read" in ran.err


def _nowhere(_dotenv: object) -> SmsSettings:
    return SmsSettings(redis="redis://127.0.0.1:1/0")


def test_an_interval_that_is_none_is_refused(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONITOR_UPDATE_INTERVAL", "often")
    ran = cli("monitor", "--updates", "1")
    assert ran.code == 2
    assert "MONITOR_UPDATE_INTERVAL" in ran.err


def test_a_store_that_is_away_is_said_beside_the_sms_system(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_HOST", "127.0.0.1:1")
    monkeypatch.setenv("PENSTOCK_STORE", "redis://127.0.0.1:2/0")
    ran = cli("monitor", "--updates", "1")
    assert ran.code == 1  # it saw neither
    assert "127.0.0.1:2" in ran.out
    assert "Redis does not answer" in ran.out
