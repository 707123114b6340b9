"""`penstock recurring …` on the store of the settings."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli


def test_a_rule_is_made_changed_shown_and_deleted(cli: Cli) -> None:
    put = ("recurring", "put", "daily", "--cron", "0 9 * * mon-fri", "--zone", "Europe/Berlin")
    made = cli(*put, "--payload", '{"a":1}', "--json").json
    assert (made["id"], made["version"], len(made["next"])) == ("daily", 1, 5)
    assert made["words"] == "At 09:00, Monday to Friday (Europe/Berlin)"
    assert "At 09:00, Monday to Friday" in cli(*put).out
    assert cli("recurring", "get", "daily", "--json").json["version"] == 2
    assert cli("recurring", "pause", "daily", "--json").json["state"] == "paused"
    assert "daily (version 4) is active" in cli("recurring", "resume", "daily").out
    assert [one["id"] for one in cli("recurring", "list", "--json").json["items"]] == ["daily"]
    assert "daily" in cli("recurring", "list").out
    name = cli("recurring", "trigger", "daily").out.strip()
    assert cli("get", name, "--json").json["headers"]["penstock-recurring"] == "daily"
    assert name in cli("recurring", "get", "daily").out
    span = ("--from", "2026-11-09T00:00:00Z", "--to", "2026-11-13T23:00:00Z")
    assert cli("recurring", "backfill", "daily", *span).out == "5 planted\n"
    assert cli("recurring", "delete", "daily", "--yes", "--json").json["deleted"]
    assert cli("recurring", "get", "daily").code == 1


def test_a_rule_may_be_written_as_json(cli: Cli, folder: Path) -> None:
    (folder / "poll.json").write_text('{"every": "15m", "labels": {"channel": "push"}}')
    cli("recurring", "put", "poll", "@poll.json", "--overlap", "skip")
    shown = cli("recurring", "get", "poll", "--json").json
    assert (shown["every"], shown["overlap"], shown["labels"]) == (
        "15m",
        "skip",
        {"channel": "push"},
    )


def test_a_preview_needs_no_store(cli: Cli, folder: Path) -> None:
    shown = cli("recurring", "preview", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--json")
    assert (len(shown.json["next"]), shown.json["words"]) == (
        5,
        "At 02:30 every day (Europe/Berlin)",
    )
    assert list(folder.glob("*.db")) == []


def test_what_is_wrong_is_said(cli: Cli) -> None:
    assert cli("recurring", "put", "r", "--cron", "0 0 30 2 *", "--json").error["field"] == "cron"
    assert cli("recurring", "put", "r", "--every", "10ms", "--json").error["field"] == "every"
    assert cli("recurring", "put", "r", "nonsense", "--json").error["code"] == "malformed"
    cli("recurring", "put", "r", "--every", "1h")
    stale = ("recurring", "put", "r", "--every", "2h", "--version", "7", "--json")
    assert cli(*stale).error["code"] == "version_conflict"


def test_a_crontab_becomes_rules_or_nothing(cli: Cli, folder: Path) -> None:
    crontab = folder / "crontab"
    crontab.write_text(
        "CRON_TZ=Europe/Berlin\n*/5 * * * * /usr/bin/backup --all\n@daily clean.sh\n"
    )
    cli("schedule", "--delay", "1h")
    tried = cli("recurring", "import", "crontab", str(crontab), "--dry-run", "--json").json
    assert [one["id"] for one in tried["items"]] == ["backup", "clean.sh"]
    assert cli("recurring", "list", "--json").json["items"] == []
    assert "backup" in cli("recurring", "import", "crontab", str(crontab)).out
    rules = cli("recurring", "list", "--json").json["items"]
    assert [rule["payload"] for rule in rules] == [
        {"command": "/usr/bin/backup --all"},
        {"command": "clean.sh"},
    ]
    crontab.write_text("* * * * * fine\n@reboot never\n")
    refused = cli("recurring", "import", "crontab", str(crontab), "--json").error
    assert "line 2" in refused["message"]
    assert len(cli("recurring", "list", "--json").json["items"]) == 2


@pytest.mark.parametrize("name", ["version", "self", "rule_id", "evry"])
def test_a_field_that_no_rule_has_is_named(cli: Cli, name: str) -> None:
    written = json.dumps({"every": "5m", name: 1})
    refused = cli("recurring", "put", "x", written)
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert refused.err.startswith(f"penstock: {name}: a rule has no such field")
    assert cli("recurring", "put", "x", written, "--json").error["field"] == name


def test_a_payload_is_read_as_that_of_a_message(cli: Cli, folder: Path) -> None:
    (folder / "body.json").write_text('{"from": "a file"}')
    (folder / "body.txt").write_text("plain")

    def payload(*options: str, stdin: bytes | None = None) -> tuple[object, object]:
        put = cli("recurring", "put", "r", "--every", "1h", *options, stdin=stdin)
        assert put.code == 0, put.err
        shown = cli("recurring", "get", "r", "--json").json
        return shown.get("payload"), shown.get("payload_base64")

    assert payload("--payload", "@body.json") == ({"from": "a file"}, None)
    assert payload("--payload", "@body.txt") == (None, "cGxhaW4=")
    assert payload("--payload", "-", stdin=b"[1]") == ([1], None)
    assert payload("--payload", "hello") == ("hello", None)
    assert payload("--payload", "{a", "--content-type", "text/plain") == (None, "e2E=")
    refused = cli("recurring", "put", "r", "--every", "1h", "--payload", "{a", "--json")
    assert (refused.code, refused.error["field"]) == (2, "payload")


def test_an_import_says_what_becomes_of_each_line(cli: Cli, folder: Path) -> None:
    crontab, take = folder / "crontab", ("recurring", "import", "crontab", "crontab")
    crontab.write_text("0 1 * * * backup\n0 2 * * * clean\n")

    def became(*options: str) -> list[str]:
        return [one["what"] for one in cli(*take, *options, "--json").json["items"]]

    assert became("--dry-run") == ["made", "made"]
    assert cli(*take, "--dry-run").out.endswith("dry run: nothing was written\n")
    assert became() == ["made", "made"]
    assert became() == ["same", "same"]
    crontab.write_text("0 1 * * * backup\n0 3 * * * clean\n")
    refused = cli(*take)
    assert refused.code == 2
    assert "nothing was imported: line 2: rule 'clean' differs (--replace" in refused.err
    assert cli("recurring", "get", "clean", "--json").json["cron"] == "0 2 * * *"
    assert became("--dry-run") == ["same", "changed"]
    assert cli(*take, "--dry-run").out.endswith("to change rules, add --replace\n")
    assert became("--replace") == ["same", "changed"]
    assert cli("recurring", "get", "clean", "--json").json["cron"] == "0 3 * * *"


def test_an_import_goes_on_without_lines_that_cannot_be_rules(cli: Cli, folder: Path) -> None:
    (folder / "crontab").write_text("@reboot start\n0 1 * * * backup\n")
    take = ("recurring", "import", "crontab", "crontab")
    assert "line 1: @reboot names no time of day (--skip" in cli(*take).err
    assert "line 1 skipped: @reboot names no time" in cli(*take, "--skip").out
    skipped = cli(*take, "--skip", "--json").json["skipped"]
    assert skipped == [{"line": 1, "reason": "@reboot names no time of day"}]
    assert [one["id"] for one in cli("recurring", "list", "--json").json["items"]] == ["backup"]


def test_what_a_rule_says_is_put_by_flags_and_shown(cli: Cli) -> None:
    put = "--every 1h --anchor 2026-01-01T00:00:00Z --expires-after 1h --misfire all --catch-up 2d"
    more = "--header x=y --label channel=push --priority 9 --key k --limit 7 --jitter 30s"
    span = "--start 2026-01-01T00:00:00Z --end 2046-01-01T00:00:00Z --overlap skip"
    payload = ("--payload", '{"a":1}')
    cli("recurring", "put", "r", *put.split(), *more.split(), *span.split(), *payload)
    shown = cli("recurring", "get", "r").out
    for name, value in (
        ("route", "default"),
        ("key", "k"),
        ("payload", '{"a":1}'),
        ("header", "x: y"),
        ("labels", '{"channel":"push"}'),
        ("priority", "9"),
        ("misfire", "all"),
        ("catch up", "2d"),
        ("overlap", "skip"),
        ("limit", "7"),
        ("jitter", "30s"),
        ("expires after", "1h"),
        ("start", "2026-01-01T00:00:00.000Z"),
        ("end", "2046-01-01T00:00:00.000Z"),
    ):
        assert f"\n{name:<13}  {value}\n" in shown
    cli("recurring", "put", "plain", "--every", "1h")
    assert "overlap" not in cli("recurring", "get", "plain").out


def test_a_preview_takes_a_span_and_a_limit(cli: Cli) -> None:
    span = ("--start", "2040-01-01T00:00:00Z", "--end", "2040-01-01T05:00:00Z", "--limit", "2")
    shown = cli("recurring", "preview", "--every", "1h", *span, "--json").json
    assert shown["next"] == ["2040-01-01T00:00:00.000Z", "2040-01-01T01:00:00.000Z"]


def test_moments_are_shown_in_the_zone_of_this_machine(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        put = ("recurring", "put", "r", "--cron", "0 0 1 1 *")
        for shown in (put, ("recurring", "list"), ("recurring", "get", "r")):
            assert "T09:00:00.000+09:00" in cli(*shown, "--local").out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_gone_is_not_due(cli: Cli) -> None:
    cli("schedule", "--id", "m1", "--delay", "1h")
    assert cli("cancel", "m1").out == "m1  cancelled\n"
