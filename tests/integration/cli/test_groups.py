"""`dead`, `route`, `store`, `config`, and what the command line says when it is used wrongly."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.session import Session
from penstock.cli.show import route_state
from penstock.model.errors import Unauthorized
from penstock.model.status_view import RouteStatus
from penstock.version import __version__
from tests.integration.cli.conftest import Cli
from tests.integration.deaths import die


def test_routes_are_listed_paused_and_resumed(cli: Cli) -> None:
    cli("schedule", "--delay", "1h")
    assert "active" in cli("route", "list").out
    assert cli("route", "pause", "default").out == "default is paused\n"
    (route,) = cli("route", "list", "--json").json["items"]
    assert (route["name"], route["paused"], route["scheduled"]) == ("default", True, 1)
    assert "paused" in cli("route", "list").out
    assert cli("route", "resume", "default", "--json").json == {"name": "default", "paused": False}
    assert cli("route", "resume", "default").out == "default is active\n"
    unknown = cli("route", "pause", "nosuch")
    assert (unknown.code, unknown.err) == (1, "penstock: no route named 'nosuch'\n")


def test_the_dead_are_listed_and_redriven(cli: Cli) -> None:
    cli("schedule", "--delay", "1h")
    assert cli("dead", "list", "--json").json == {"items": [], "next": None}
    every = ("dead", "redrive", "--all", "--yes")
    assert cli(*every, "--rate", "10/s", "--json").json == {"matched": 0, "done": 0}
    assert cli(*every, "--rate", "often").code == 2
    assert "a filter" in cli("dead", "redrive", "--rate", "10/s", "--yes").err
    assert cli("dead", "redrive", "--all", "--route", "default", "--yes").code == 2


def test_the_dead_are_deleted_by_id_or_by_filter(cli: Cli, folder: Path) -> None:
    die(folder, *(f"d{number}" for number in range(4)))
    shown = cli("dead", "show", "d0", "--json").json
    assert (shown["id"], shown["last_error"]) == ("d0", "HTTP 410")
    assert cli("dead", "delete", "d0").out.startswith("d0  deleted")
    cli("schedule", "--delay", "1h", "--id", "waits")
    assert "is scheduled, not dead" in cli("dead", "show", "waits").err
    assert cli("dead", "delete", "d0", "d1").code == 1
    assert [item["id"] for item in cli("dead", "list", "--json").json["items"]] == ["d2", "d3"]
    assert cli("dead", "delete").code == 2
    assert cli("dead", "delete", "--error", "410", "--dry-run").out == "2 would be deleted\n"
    for answer in (b"", b"n\n", b"y\n"):
        refused = cli("dead", "delete", "--error", "410", stdin=answer)
        assert refused.code == 2
        assert "no terminal to ask on; add --yes" in refused.err
    assert len(cli("dead", "list", "--json").json["items"]) == 2
    assert cli("dead", "delete", "--all", "--yes").out == "2 of 2 deleted\n"
    assert cli("dead", "list", "--json").json["items"] == []
    assert cli("dead", "delete", "--all", "--yes").out == "0 of 0 deleted\n"


def test_everything_of_a_key_is_forgotten(cli: Cli, folder: Path) -> None:
    die(folder, "dead")
    cli("schedule", "--delay", "1h", "--key", "k")
    cli("schedule", "--delay", "1h", "--key", "other", "--id", "stays")
    assert cli("forget").code == 2
    assert cli("forget", "--key", "k").code == 2
    assert cli("forget", "--key", "k", "--yes", "--json").json == {
        "key": "k",
        "messages": 2,
        "counters": 0,
        "pending": 0,
        "next": None,
    }
    assert [item["id"] for item in cli("list", "--json").json["items"]] == ["stays"]
    assert cli("forget", "--key", "k", "--yes").out == "0 messages and 0 counters erased\n"


def test_a_sound_store_is_told_from_a_broken_one(cli: Cli, folder: Path) -> None:
    cli("schedule", "--delay", "1h", "--payload", "x" * 100_000)
    assert cli("store", "check", "--json").json["status"] == "ok"
    with closing(sqlite3.connect(folder / "penstock.db")) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = folder / "penstock.db"
    data = bytearray(file.read_bytes())
    data[40_960:49_152] = b"\xa5" * 8_192
    file.write_bytes(data)
    broken = cli("store", "check")
    assert broken.code == 1
    assert "penstock.db" in broken.err


def test_good_settings_are_called_good(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text('[routes.push]\nsink = "https://example.test/hook"\n')
    assert cli("config", "check", "--json").json == {
        "status": "ok",
        "routes": ["default", "push"],
    }
    assert [path.name for path in folder.iterdir()] == ["penstock.toml"]


def test_every_problem_of_the_settings_is_listed(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        """
        store = "mysql://h/db"
        [api]
        http = "0.0.0.0:8700"
        [routes.a]
        sink = "carrier-pigeon://coop"
        [routes.b]
        sink = "python:no.such.module:function"
        [routes.c]
        sink = "log://"
        colour = "red"
        """
    )
    refused = cli("config", "check")
    assert refused.code == 2
    for named in ("store", "routes.a.sink", "routes.b.sink", "routes.c.colour", "api.http"):
        assert named in refused.err
    assert "Traceback" not in refused.err


def test_what_could_be_read_is_checked_although_something_could_not(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.toml").write_text(
        """
        [worker]
        lease = "soon"
        [api]
        http = "0.0.0.0:8700"
        [routes.a]
        sink = "carrier-pigeon://coop"
        [routes.b]
        max_attempts = 0
        [sources.s]
        from = "nats://127.0.0.1:1/x"
        route = "b"
        """
    )
    refused = cli("config", "check", "--json")
    assert refused.code == 2
    problems = refused.error["problems"]
    named = [problem.partition(" ")[0].rstrip(":") for problem in problems]
    assert named == ["worker.lease", "routes.b.max_attempts", "routes.a.sink", "api.http"]
    monkeypatch.setenv("PENSTOCK_API__TOKENS", '[{"name":"x"')
    refused = cli("config", "check")
    assert refused.code == 2
    assert "PENSTOCK_API__TOKENS" in refused.err
    assert "api.http" not in refused.err  # whether it has tokens is not known


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").out == f"penstock {__version__}\n"
    assert cli("--version").code == 0


def test_a_syntax_error_in_the_settings_exits_2(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text("[api\n")
    for command in (["config", "check"], ["list"], ["serve"], ["config", "show"]):
        refused = cli(*command)
        assert refused.code == 2
        assert "line 1, column" in refused.err


def test_settings_are_shown_with_their_origin_and_without_secrets(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.toml").write_text(
        '[api]\ntokens = ["hunter2"]\n[routes.a]\nsink = "https://u:hunter2@h/?token=hunter2"\n'
    )
    monkeypatch.setenv("PENSTOCK_WORKER__LEASE", "10s")
    shown = cli("config", "show", "--json")
    assert "hunter2" not in shown.out
    assert shown.json["worker.lease"] == {
        "value": "10s",
        "from": "environment: PENSTOCK_WORKER__LEASE",
    }
    assert re.fullmatch(r"https://h/…#[0-9a-f]{4}", shown.json["routes.a.sink"]["value"])
    table = cli("config", "show").out
    assert "hunter2" not in table
    assert "penstock.toml" in table


def test_a_missing_server_is_one_sentence(cli: Cli) -> None:
    refused = cli("list", "--url", "http://127.0.0.1:9")
    assert refused.code == 1
    assert refused.err.startswith("penstock: no Penstock server answers at http://127.0.0.1:9")
    assert len(refused.err.splitlines()) == 1
    assert cli("list", "--url", "nonsense").code == 2


def test_the_address_of_the_server_comes_from_dotenv_too(cli: Cli, folder: Path) -> None:
    (folder / ".env").write_text("PENSTOCK_URL=http://127.0.0.1:9\n")
    assert "http://127.0.0.1:9" in cli("list").err


@pytest.mark.parametrize(
    "args", [["nonsense"], ["get"], ["list", "--limit", "0"], ["schedule", "--priority", "12"]]
)
def test_wrong_usage_exits_2(cli: Cli, args: list[str]) -> None:
    refused = cli(*args)
    assert (refused.code, refused.out) == (2, "")
    assert "Usage" in refused.err


@pytest.mark.parametrize("args", [["nonsense"], ["get"], ["list", "--limit", "0"]])
def test_wrong_usage_is_json_for_machines(cli: Cli, args: list[str]) -> None:
    refused = cli("--json", *args)
    assert refused.code == 2
    assert json.loads(refused.err)["error"]["code"] == "usage"


def test_every_command_explains_itself_with_an_example(cli: Cli) -> None:
    commands = [
        "serve",
        "api",
        "worker",
        "schedule",
        "get",
        "list",
        "cancel",
        "reschedule",
        "release",
        "forget",
    ]
    pairs = ["dead list", "dead show", "dead redrive", "dead delete"]
    pairs += ["route list", "route pause", "route resume"]
    for command in [
        *commands,
        *pairs,
        "config check",
        "config show",
        "store check",
    ]:
        shown = cli(*command.split(), "--help").out
        assert f"penstock {command}" in shown.partition("Examples:")[2], command
        assert "--config" in shown
        assert "--json" in shown


def test_policies_are_put_listed_explained_and_deleted(cli: Cli, folder: Path) -> None:
    cap = '{"kind":"cap","scope":["key"],"limit":3,"window":"24h"}'
    assert cli("policy", "put", "daily", cap).out == "daily is in force\n"
    (folder / "quiet.json").write_text('{"kind":"quiet","from":"00:00","to":"23:59"}')
    assert cli("policy", "put", "nights", "@quiet.json", "--json").json["id"] == "nights"
    listed = cli("policy", "list", "--json").json["items"]
    assert [item["id"] for item in listed] == ["daily", "nights"]
    assert "three" not in cli("policy", "list").out
    assert cli("policy", "show", "daily").json["limit"] == 3
    told = cli("policy", "explain", "ann", "--label", "tz=Asia/Seoul", "--json").json
    assert (told["verdict"], told["reason"]["policy"]) == ("DEFER", "nights")
    assert cli("policy", "explain", "ann").out.startswith("DEFER until ")
    (counter,) = cli("policy", "counters", "ann", "--json").json["items"]
    assert (counter["policy"], counter["used"], counter["limit"]) == ("daily", 0, 3)
    assert "key ann" in cli("policy", "counters", "ann").out
    assert cli("policy", "delete", "daily").code == 0
    assert cli("policy", "delete", "daily").code == 1
    assert cli("policy", "show", "daily").code == 1


def test_a_message_is_explained_by_its_id_as_it_is_or_otherwise(cli: Cli) -> None:
    cli("policy", "quiet", "nights", "--from", "00:00", "--to", "23:59", "--bypass", "urgent")
    cli("suppression", "put", "optout", '{"keys":["ann"]}')
    send = ("schedule", "--delay", "1h", "--key", "bob", "--id")
    cli(*send, "m1", "--label", "class=news")
    told = cli("policy", "explain", "--id", "m1", "--json").json
    assert (told["verdict"], told["reason"]["policy"]) == ("DEFER", "nights")
    assert cli("policy", "explain", "--id", "m1", "--label", "class=urgent").out.startswith("ALLOW")
    hint = "m1 is also a message, of the key bob; about that message: penstock policy explain --id"
    by_mistake = cli("policy", "explain", "m1")
    assert by_mistake.out.startswith("DEFER")
    assert hint in by_mistake.err
    cli("schedule", "--delay", "1h", "--id", "its-own-key")
    for key in ("bob", "its-own-key", "é"):
        assert cli("policy", "explain", key).err == ""
    assert cli("policy", "explain", "--id", "m2").code == 1
    assert cli("policy", "explain").code == cli("policy", "explain", "a", "--id", "m1").code == 2


def test_suppression_lists_are_put_changed_and_shown(cli: Cli) -> None:
    optout = '{"keys":["ann"],"legal":true}'
    assert cli("suppression", "put", "optout", optout).out == "optout is in force with 1 key\n"
    assert cli("suppression", "add", "optout", "bob", "cid").out == "bob, cid added to optout\n"
    assert cli("suppression", "remove", "optout", "ann", "--json").json == {"id": "optout"}
    assert cli("suppression", "show", "optout").json["keys"] == ["bob", "cid"]
    (listed,) = cli("suppression", "list", "--json").json["items"]
    assert listed == {"id": "optout", "legal": True}
    assert "optout" in cli("suppression", "list").out
    assert cli("policy", "explain", "bob").out.startswith("BLOCK: optout, suppressed by law")
    assert cli("suppression", "delete", "optout").out == "optout is forgotten\n"
    assert cli("suppression", "show", "optout").code == 1


def test_a_policy_that_makes_no_sense_is_bad_usage(cli: Cli) -> None:
    wrong = cli("policy", "put", "p", '{"kind":"pace","rate":"0/s"}', "--json")
    assert (wrong.code, wrong.error["field"]) == (2, "rate")
    assert cli("policy", "put", "p", "@nowhere.json").code == 2


def test_a_sink_that_is_away_is_told_from_a_route_that_goes() -> None:
    def state(
        *, paused: bool = False, away: bool | None = None, reached: bool | None = None
    ) -> str:
        figures = {"scheduled": 0, "overdue": 0, "leased": 0, "dead": 0}
        return route_state(
            RouteStatus(
                name="r",
                sink="log://",
                paused=paused,
                next_due=None,
                waiting_for_sink=away,
                reached=reached,
                **figures,
            )
        )

    assert [state(), state(away=False), state(away=True)] == ["active", "active", "sink away"]
    assert state(paused=True, away=True) == "paused"
    assert state(away=False, reached=False) == "sink never reached"
    assert state(away=True, reached=False) == "sink away"


def test_a_token_that_is_missing_is_told_with_the_option_for_it() -> None:
    told = Session(url="http://h").error_text(Unauthorized("a Bearer token is required"))
    assert "--token or PENSTOCK_TOKEN" in told
