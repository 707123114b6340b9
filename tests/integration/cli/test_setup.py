"""A new folder: `init`, `doctor`, `status`, `help`, what is left behind, and what a start says."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from penstock.cli.init import TEMPLATE
from penstock.cli.show import route_state
from penstock.sdk.async_client import AsyncClient
from penstock.settings import examine
from penstock.version import __version__
from penstock.wiring import driver_problems
from systems.servers.ports import free_port
from tests.integration.cli.conftest import Cli
from tests.servers.penstock import run_penstock


def test_a_settings_file_is_written_once(cli: Cli, folder: Path) -> None:
    assert "penstock.toml is written" in cli("init").out
    assert cli("config", "check", "--json").json == {"status": "ok", "routes": ["default"]}
    (folder / "penstock.toml").write_text("# mine\n")
    refused = cli("init")
    assert (refused.code, "already there" in refused.err) == (2, True)
    assert (folder / "penstock.toml").read_text() == "# mine\n"
    assert cli("init", "other.toml", "--json").json == {"file": str(folder / "other.toml")}
    assert cli("init", "no/such/folder.toml").code == 2


def test_everything_that_the_settings_file_shows_can_be_said(folder: Path) -> None:
    """Its comments begin with "# "; what is only commented out begins with "#"."""
    lines = TEMPLATE.read_text().splitlines()
    shown = [re.sub(r"^#(?! )", "", line) for line in lines if not line.startswith("#store")]
    text = "\n".join(shown).replace("whsec_…", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    (folder / "penstock.toml").write_text(text.replace("…", "0123456789abcdef"))
    found = examine()
    assert (found.problems, found.warnings) == ([], [])
    assert sorted(found.settings.routes) == ["default", "hook", "push"]
    assert sorted(found.settings.policies) == ["nights", "provider", "three-a-day"]
    assert asyncio.run(driver_problems(found.settings)) == []


def test_a_doctor_has_a_line_for_every_part(cli: Cli, folder: Path) -> None:
    fresh = cli("doctor", "--json").json
    assert [(each["status"], each["part"]) for each in fresh["findings"]] == [
        ("ok", "settings"),
        ("warning", "store"),
        ("ok", "sink of default"),
    ]
    assert list(folder.iterdir()) == []
    cli("schedule", "--delay", "1h")
    parts = {each["part"]: each for each in cli("doctor", "--json").json["findings"]}
    assert list(parts) == ["settings", "store", "durability", "clock", "sink of default"]
    assert str(folder / "penstock.db") in parts["store"]["detail"]
    assert {each["status"] for each in parts.values()} <= {"ok", "warning"}


def test_a_doctor_finds_what_is_wrong(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        f"""
        store = "redis://127.0.0.1:{free_port()}/0"
        [api]
        http = "0.0.0.0:8700"
        [routes.hook]
        sink = "http://127.0.0.1:{free_port()}/hook"
        """
    )
    done = cli("doctor", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["status"] == "failed"
    failed = [each["part"] for each in found["findings"] if each["status"] == "failed"]
    assert failed == ["settings", "store", "sink of hook"]
    assert cli("doctor").code == 1


def test_a_doctor_finds_that_a_store_cannot_be_made(cli: Cli, folder: Path) -> None:
    nowhere = cli("doctor", "--store", str(folder / "none" / "penstock.db"), "--json")
    store = next(one for one in json.loads(nowhere.out)["findings"] if one["part"] == "store")
    assert (nowhere.code, store["status"]) == (1, "failed")
    assert "cannot be made" in store["detail"]
    passing = cli("doctor", "--store", "memory://", "--json").json["findings"]
    assert [one["status"] for one in passing] == ["ok", "warning", "ok"]
    assert list(folder.iterdir()) == []


def test_lines_of_a_table_end_where_their_words_end(cli: Cli) -> None:
    cli("schedule", "--delay", "1h", "--key", "a-long-key")
    cli("schedule", "--delay", "2h")
    assert all(line == line.rstrip() for line in cli("list").out.splitlines())


def test_the_status_is_one_page(cli: Cli) -> None:
    cli("schedule", "--delay", "1h")
    page = cli("status").out
    for words in (
        f"penstock        {__version__}",
        "takes messages  yes",
        "no worker: nothing is sent",
    ):
        assert words in page
    told = cli("status", "--json").json
    assert (told["ready"], told["states"]["scheduled"]) == (True, 1)
    assert cli("status", "--url", "http://127.0.0.1:9").code == 1


def test_help_and_version_are_commands_too(cli: Cli) -> None:
    assert cli("version").out == f"penstock {__version__}\n"
    assert cli("version", "--json").json == {"version": __version__}
    assert cli("help").out == cli("--help").out
    assert cli("help", "dead", "redrive").out == cli("dead", "redrive", "--help").out
    assert cli("help", "nonsense").code == 2


def test_messages_answer_to_their_noun_too(cli: Cli) -> None:
    cli("message", "schedule", "--id", "m1", "--delay", "1h")
    assert cli("message", "list").out == cli("list").out != ""
    assert "message" not in [line.split()[0] for line in cli("--help").out.splitlines() if line]


def test_commands_are_listed_by_what_they_are_for(cli: Cli) -> None:
    shown = cli("--help").out
    headings = ["Run:", "Messages:", "Rules:", "Rooms:", "Operate:", "Try:"]
    places = [shown.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    assert "\nCommands:\n" not in shown, "each command has its place"


def test_metavars_are_words(cli: Cli) -> None:
    for command in ("schedule", "list", "cancel", "suppression add", "room put", "policy cap"):
        shown = cli(*command.split(), "--help").out
        assert not re.search(r"<\w|\{[A-Z]|x>=|<=x", shown), shown
    assert "Usage: penstock cancel [OPTIONS] [ID…]\n" in cli("cancel", "--help").out
    assert "Usage: penstock suppression add [OPTIONS] LIST KEY…\n" in (
        cli("suppression", "add", "--help").out
    )


@pytest.mark.parametrize(
    "args",
    [
        ["schedule", "nope"],
        ["schedule", "--at", "noon"],
        ["policy", "pace", "p", "--rate", "0/s"],
        ["policy", "put", "p", "{"],
        ["suppression", "put", "s", '{"keys":[""]}'],
        ["room", "put", "sale", "--admit-rate", "often"],
        ["recurring", "put", "r", "--cron", "noon"],
        ["recurring", "put", "r", "--every", "1h", "--route", "nope"],
    ],
)
def test_what_is_refused_leaves_no_store_behind(cli: Cli, folder: Path, args: list[str]) -> None:
    assert cli(*args).code == 2
    assert list(folder.iterdir()) == []


def test_an_import_that_is_only_tried_leaves_no_store_behind(cli: Cli, folder: Path) -> None:
    (folder / "crontab").write_text("0 1 * * * backup\n")
    take = ("recurring", "import", "crontab", "crontab")
    assert "backup" in cli(*take, "--dry-run").out
    assert cli(*take, "--route", "nope").code == 2
    assert [path.name for path in folder.iterdir()] == ["crontab"]


def test_a_store_is_named_by_its_file_too(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("schedule", "--delay", "1h", "--id", "m1", "--store", "other.db")
    assert [path.name for path in folder.glob("*.db")] == ["other.db"]
    assert cli("get", "m1", "--json", "--store", str(folder / "other.db")).json["id"] == "m1"
    assert cli("get", "m1", "--json", "--store", "sqlite:///other.db").json["id"] == "m1"
    monkeypatch.setenv("PENSTOCK_STORE", "other.db")
    assert cli("get", "m1", "--json").json["id"] == "m1"


def test_policies_are_said_with_flags(cli: Cli) -> None:
    shown: dict[str, dict[str, object]] = {
        "cap three-a-day --limit 3 --per key --window 24h": {
            "kind": "cap",
            "scope": ["key"],
            "limit": 3,
            "window": "24h",
        },
        "cap weekly --limit 10 --window week --zone Europe/Berlin --on-exceed BLOCK": {
            "kind": "cap",
            "scope": ["key"],
            "limit": 10,
            "window": {"calendar": "week", "zone": "Europe/Berlin"},
            "on_exceed": "BLOCK",
        },
        "cap apart --per key,channel --min-interval 1h --label class=promotional --shadow": {
            "kind": "cap",
            "scope": ["key", "channel"],
            "min_interval": "1h",
            "applies_to": {"class": ["promotional"]},
            "shadow": True,
        },
        "quiet nights --from 22:00 --to 08:00 --days sat,sun --bypass transactional": {
            "kind": "quiet",
            "from": "22:00",
            "to": "08:00",
            "days": ["sat", "sun"],
            "bypass": ["transactional"],
        },
        "pace provider --rate 50/s --burst 10 --route push --route sms --max-defer 3d": {
            "kind": "pace",
            "rate": "50/s",
            "burst": 10,
            "applies_to": {"route": ["push", "sms"]},
            "max_defer": "3d",
        },
    }
    for words, rule in shown.items():
        name = words.split()[1]
        assert cli("policy", *words.split()).out == f"{name} is in force\n"
        assert cli("policy", "show", name).json == {"id": name, **rule}
    wrong = cli("policy", "cap", "c", "--limit", "3", "--window", "24h", "--zone", "Asia/Seoul")
    assert (wrong.code, "calendar window" in wrong.err) == (2, True)
    assert cli("policy", "cap", "c", "--limit", "3").code == 2


def test_a_payload_is_read_from_the_file_it_names(cli: Cli, folder: Path) -> None:
    (folder / "body.json").write_text('{"a": 1}')
    cli("schedule", "--payload", "@body.json", "--id", "m1", "--delay", "1h")
    cli("schedule", "--payload", "-", "--id", "m2", "--delay", "1h", stdin=b"[2]")
    cli("schedule", "--payload", '"@body.json"', "--id", "m3", "--delay", "1h")
    payloads = [cli("get", name, "--json").json["payload"] for name in ("m1", "m2", "m3")]
    assert payloads == [{"a": 1}, [2], "@body.json"]
    assert cli("schedule", "--payload", "@none.json").code == 2


def test_a_check_warns_of_a_policy_for_no_route(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        '[policies.p]\nkind = "pace"\nrate = "1/s"\napplies_to = { route = ["push"] }\n'
    )
    done = cli("config", "check")
    assert done.code == 0
    assert "warning: policies.p.applies_to.route: no route 'push'; known: default" in done.out
    (warning,) = cli("config", "check", "--json").json["warnings"]
    assert "'push'" in warning


@pytest.mark.slow
async def test_a_start_says_what_it_works_on(tmp_path: Path) -> None:
    config = (
        f'store = "sqlite:///own.db"\n[routes.hook]\nsink = "http://127.0.0.1:{free_port()}/x"\n'
    )
    async with run_penstock(
        tmp_path, config + '[api]\nhttp = "127.0.0.1:@PORT@"\n', env={"PENSTOCK_IMAGE": "x"}
    ) as server:
        said = server.log.read_text()
        assert f"Penstock {__version__} holds messages in sqlite:///{tmp_path}/own.db" in said
        assert re.search(rf"settings   {tmp_path}/serve-\d+\.toml\n", said)
        assert re.search(r"routes     default → log://\n +hook → http://", said)
        assert "PENSTOCK_IMAGE: no such setting; it is ignored" in said


@pytest.mark.slow
async def test_a_sink_that_was_never_reached_is_told_at_once(tmp_path: Path) -> None:
    """Before any message was sent to it."""
    config = f'[api]\nhttp = "127.0.0.1:@PORT@"\n[routes.hook]\nsink = "http://127.0.0.1:{free_port()}/x"\n'
    async with run_penstock(tmp_path, config) as server, AsyncClient(server.url) as client:
        ready = await client.health()
        assert (ready.status, ready.parts["sink.default"].status) == ("ready", "ok")
        assert ready.parts["sink.hook"].status == "waiting"
        states = {route.name: route_state(route) for route in await client.routes()}
    assert states == {"default": "active", "hook": "sink never reached"}


def test_a_load_is_sized_without_a_store(cli: Cli, folder: Path) -> None:
    words = ("size", "--rate", "50k/s", "--pending", "200M")
    shown = cli(*words, "--store", "redis")
    assert "total_partitions" in shown.out
    assert "Reckoned from figures of" in shown.out
    sized = cli(*words, "--store", "dynamodb", "--write-price", "1.5", "--json").json
    assert {line["what"] for line in sized["lines"]} >= {"write units", "requests a month"}
    refused = cli("size", "--rate", "fast", "--pending", "1")
    assert (refused.code, "50k/s" in refused.err) == (2, True)
    assert not any(folder.glob("penstock.db*"))
