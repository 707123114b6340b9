"""`schedule`, `get`, `list`, `cancel`, `reschedule`, `release` on the store of the settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli


def test_a_message_is_scheduled_and_shown(cli: Cli) -> None:
    done = cli("schedule", "default", "--payload", '{"a": 1}', "--delay", "1h", "--id", "m1")
    assert done.code == 0
    assert done.out.startswith("m1  scheduled, due ")
    shown = cli("get", "m1").out
    assert '{"a": 1}' in shown
    assert "accepted" in shown


def test_everything_that_can_be_said_of_a_message_arrives(cli: Cli) -> None:
    options = (
        "--at 2090-01-01T00:00:00+01:00 --id m1 --key user1 --header x-a=b=c --header x-d=e"
        " --priority 9 --expires 2091-01-01T00:00:00Z --label channel=push --label tags=a,b"
        " --label class=promotional --topic orders"
    )
    assert cli("schedule", "--json", *options.split()).json == {
        "id": "m1",
        "state": "scheduled",
        "due": "2089-12-31T23:00:00.000Z",
        "duplicate": False,
    }
    message = cli("get", "m1", "--json").json
    assert message["key"] == "user1"
    assert message["headers"] == {"x-a": "b=c", "x-d": "e"}
    assert message["labels"] == {"channel": "push", "class": "promotional", "tags": ["a", "b"]}
    assert (message["priority"], message["topic"]) == (9, "orders")
    assert message["expires"] == "2091-01-01T00:00:00.000Z"
    assert message["timeline"][0]["event"] == "accepted"


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a":1}', {"a": 1}), ("hello you", "hello you"), ("17", 17), ("null", None), ('"q"', "q")],
)
def test_a_payload_is_json_or_else_a_string_of_it(cli: Cli, text: str, value: object) -> None:
    cli("schedule", "--payload", text, "--id", "m1", "--delay", "1h")
    assert cli("get", "m1", "--json").json["payload"] == value


def test_a_slip_in_json_is_not_taken_for_text(cli: Cli) -> None:
    refused = cli("schedule", "--payload", '{"a":1', "--json")
    assert (refused.code, refused.error["field"]) == (2, "payload")


def test_a_payload_with_a_content_type_is_sent_as_it_is(cli: Cli) -> None:
    cli("schedule", "--payload", "17", "--content-type", "text/plain", "--id", "m1", "--delay=1h")
    message = cli("get", "m1", "--json").json
    assert (message["payload_base64"], message["content_type"]) == ("MTc=", "text/plain")


def test_a_payload_comes_from_a_file_or_from_standard_input(cli: Cli, folder: Path) -> None:
    (folder / "body.json").write_text('{\n "a": 1\n}')
    cli("schedule", "--payload-file", "body.json", "--id", "m1", "--delay", "1h")
    cli("schedule", "--payload-file", "-", "--id", "m2", "--delay", "1h", stdin=b"\x00\xff")
    assert cli("get", "m1", "--json").json["payload"] == {"a": 1}
    assert cli("get", "m2", "--json").json["payload_base64"] == "AP8="
    assert cli("schedule", "--payload-file", "none.json").code == 2
    assert cli("schedule", "--payload", "1", "--payload-file", "body.json").code == 2


def test_the_same_id_twice_is_told(cli: Cli) -> None:
    cli("schedule", "--id", "m1", "--delay", "1h")
    assert "(known before)" in cli("schedule", "--id", "m1", "--delay", "1h").out
    assert cli("schedule", "--id", "m1", "--json").json["duplicate"] is True


def test_an_id_that_is_settled_is_not_told_as_scheduled(cli: Cli) -> None:
    cli("schedule", "--id", "m1", "--delay", "1h")
    cli("cancel", "m1")
    again = cli("schedule", "--id", "m1", "--delay", "1h")
    assert again.code == 0
    assert again.out.startswith("nothing was scheduled: the id m1 is already cancelled (")
    assert cli("schedule", "--id", "m1", "--json").json["state"] == "cancelled"


@pytest.mark.parametrize("store", ["sqlite://", "sqlite:///:memory:", "memory://"])
def test_a_store_in_memory_is_refused_what_it_would_lose(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", store)
    refused = cli("schedule", "--delay", "1h")
    assert (refused.code, refused.out) == (2, "")
    assert "memory" in refused.err
    assert "PENSTOCK_STORE" in refused.err


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (["--at", "noon"], "at"),
        (["--at", "2030-01-01T00:00:00"], "at"),
        (["--delay", "soon"], "delay"),
        (["--delay", "1s", "--at", "2030-01-01T00:00:00Z"], "delay"),
        (["--id", ""], "id"),
        (["--header", "x"], "header"),
        (["--header", "webhook-id=1"], "headers"),
        (["--label", "color=red"], "labels.color"),
        (["--on-conflict", "fight"], "on_conflict"),
        (["nosuch"], "route"),
    ],
)
def test_a_bad_option_is_named_and_exits_2(cli: Cli, args: list[str], field: str) -> None:
    refused = cli("schedule", "--json", *args)
    assert (refused.code, refused.out) == (2, "")
    assert refused.error["field"] == field


def test_a_list_is_filtered_and_paged(cli: Cli) -> None:
    for n in range(5):
        cli("schedule", "--id", f"m{n}", "--delay", f"{n + 1}h", "--key", "a" if n < 4 else "b")
    cli("cancel", "m3")
    page = cli("list", "--json", "--state", "scheduled", "--key", "a", "--limit", "2").json
    assert [item["id"] for item in page["items"]] == ["m0", "m1"]
    rest = cli("list", "--json", "--key", "a", "--limit", "2", "--cursor", page["next"]).json
    assert [item["id"] for item in rest["items"]] == ["m2", "m3"]
    every = cli("list", "--all", "--json", "--limit", "2")
    assert len(every.out.splitlines()) == 5
    table = cli("list", "--limit", "2")
    assert table.out.splitlines()[0].split()[:3] == ["id", "route", "state"]
    assert "--cursor" in table.err


def test_common_options_stand_before_or_after_the_command(cli: Cli, folder: Path) -> None:
    (folder / "other.toml").write_text('store = "sqlite:///other.db"\n')
    cli("schedule", "--id", "m1", "--delay", "1h", "--config", "other.toml")
    assert (folder / "other.db").exists()
    before = cli("--config", "other.toml", "--json", "list").json
    after = cli("list", "--json", "--config", "other.toml").json
    mixed = cli("--json", "list", "--config", "other.toml").json
    group = cli("dead", "--json", "list", "--config", "other.toml").json
    assert before == after == mixed
    assert group == {"items": [], "next": None}


def test_a_look_into_a_store_that_is_not_there_makes_none(cli: Cli, folder: Path) -> None:
    for args in (["list"], ["get", "m1"], ["cancel", "m1"], ["dead", "list"], ["store", "check"]):
        refused = cli(*args)
        assert refused.code == 1
        assert "penstock.db does not exist" in refused.err
    assert list(folder.iterdir()) == []


def test_a_change_is_answered_definitely(cli: Cli) -> None:
    cli("schedule", "--id", "m1", "--delay", "1h")
    moved = cli("reschedule", "m1", "--at", "2090-01-01T00:00:00Z", "--payload", "2", "--json").json
    assert (moved["due"], moved["payload"]) == ("2090-01-01T00:00:00.000Z", 2)
    assert cli("cancel", "m1", "--version", "1").code == 1
    assert "version 2" in cli("cancel", "m1", "--version", "1").err
    assert cli("release", "m1", "--version", "2").code == 0
    assert cli("cancel", "m1").code == 0
    assert cli("cancel", "m1").code == 0
    late = cli("reschedule", "m1", "--delay", "1h", "--json")
    assert (late.code, late.error["code"]) == (1, "already_released")
    unknown = cli("release", "nobody")
    assert (unknown.code, unknown.err) == (
        1,
        "penstock: no message with id 'nobody' (never accepted, or kept no longer)\n",
    )
    assert cli("reschedule", "m1").code == 2


def test_many_are_cancelled_by_id_or_by_filter(cli: Cli) -> None:
    for n in range(6):
        cli("schedule", "--id", f"m{n}", "--delay", "1h", "--key", f"k{n % 2}")
    assert len(cli("cancel", "m0", "m1").out.splitlines()) == 2
    assert cli("cancel", "--key", "k0", "--dry-run").out == "2 would be cancelled\n"
    assert cli("cancel", "--key", "k0").code == 2
    assert cli("cancel", "--key", "k0", "--yes").out == "2 of 2 cancelled\n"
    assert cli("cancel", "--all", "--yes", "--json").json == {"matched": 2, "done": 2}
    assert cli("cancel").code == 2
    assert cli("cancel", "m1", "--all").code == 2


def test_every_id_is_tried_although_some_cannot_be_cancelled(cli: Cli) -> None:
    for name in ("m1", "m2", "m3"):
        cli("schedule", "--id", name, "--delay", "1h")
    done = cli("cancel", "m1", "nope", "m2")
    assert done.code == 1
    assert [line.split()[0] for line in done.out.splitlines()] == ["m1", "m2"]
    assert done.err == "penstock: no message with id 'nope' (never accepted, or kept no longer)\n"
    done = cli("cancel", "nope", "m3", "gone", "--json")
    assert done.code == 1
    assert json.loads(done.out)["id"] == "m3"
    errors = [json.loads(line)["error"] for line in done.err.splitlines()]
    assert [(error["code"], error["id"]) for error in errors] == [
        ("not_found", "nope"),
        ("not_found", "gone"),
    ]


def test_what_others_sent_cannot_steer_the_terminal(cli: Cli) -> None:
    cli("schedule", "--payload-file", "-", "--id", "m1", "--delay", "1h", stdin=b"\x1b[31mred")
    shown = cli("get", "m1").out
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown


def test_the_horizon_holds_here_too(cli: Cli, folder: Path) -> None:
    (folder / "penstock.toml").write_text('[limits]\nmin_delay = "1m"\nmax_delay = "15d"\n')
    for delay, limit in (("59s", "min_delay"), ("16d", "max_delay")):
        done = cli("schedule", "--payload", "1", "--delay", delay, "--json")
        assert (done.code, done.error["field"]) == (2, "delay")
        assert limit in done.error["message"]
    assert cli("schedule", "--payload", "1", "--delay", "1h", "--id", "m1").code == 0
    assert cli("reschedule", "m1", "--delay", "1s", "--json").error["field"] == "delay"


@pytest.fixture
def three(cli: Cli) -> None:
    """Two messages of user a and one of user b, each an hour ahead."""
    for n in range(3):
        cli("schedule", "--id", f"m{n}", "--delay", "1h", "--key", "a" if n < 2 else "b")


def test_everything_that_matches_is_released(cli: Cli, three: None) -> None:
    assert cli("release", "--key", "a", "--dry-run").out == "2 would be released\n"
    assert cli("release", "--key", "a", "--json").json == {"matched": 2, "done": 2}
    assert cli("release", "--key", "a").out == "0 of 0 released\n"  # they are due already
    assert [event["event"] for event in cli("get", "m2", "--json").json["timeline"]] == ["accepted"]


def test_everything_that_matches_is_rescheduled(cli: Cli, three: None) -> None:
    then = "2090-01-01T00:00:00.000Z"
    assert cli("reschedule", "--key", "a", "--at", then, "--dry-run").out == (
        "2 would be rescheduled\n"
    )
    assert cli("reschedule", "--key", "a", "--at", then).out == "2 of 2 rescheduled\n"
    due = {item["id"]: item["due"] for item in cli("list", "--json").json["items"]}
    assert due["m0"] == due["m1"] == then > due["m2"]
    assert cli("reschedule", "--all", "--delay", "2h").out == "3 of 3 rescheduled\n"


def test_several_ids_are_changed_and_the_bad_one_is_told(cli: Cli, three: None) -> None:
    done = cli("release", "m0", "nobody", "m1")
    assert (done.code, len(done.out.splitlines())) == (1, 2)
    assert done.err == (
        "penstock: no message with id 'nobody' (never accepted, or kept no longer)\n"
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["release"], "give ids, or a filter"),
        (["release", "m0", "--key", "a"], "give ids, or a filter"),
        (["cancel", "m0", "--dry-run"], "not for ids"),
        (["release", "--key", "a", "--version", "1"], "not for a filter"),
        (["reschedule", "--key", "a"], "say when: --at or --delay"),
        (["reschedule", "m0"], "say what to change"),
        (["reschedule", "--key", "a", "--delay", "1h", "--priority", "9"], "only --at or --delay"),
    ],
)
def test_a_change_that_says_two_things_does_none(
    cli: Cli, three: None, args: list[str], words: str
) -> None:
    refused = cli(*args)
    assert (refused.code, refused.out) == (2, "")
    assert words in refused.err
    held = cli("list", "--json", "--state", "scheduled").json["items"]
    assert [item["version"] for item in held] == [1, 1, 1]


def test_a_list_of_nothing_says_so(cli: Cli, three: None) -> None:
    for args in (["list", "--key", "c"], ["dead", "list"], ["room", "list"], ["policy", "list"]):
        shown = cli(*args)
        assert (shown.code, shown.out) == (0, "")
        assert shown.err.startswith("no ")


def test_a_list_of_the_deferred_says_what_state_they_are_in(cli: Cli) -> None:
    refused = cli("list", "--state", "deferred")
    assert (refused.code, refused.out) == (2, "")
    assert "a deferred message is `scheduled`" in refused.err


def test_a_list_of_commands_cuts_no_sentence_short(cli: Cli) -> None:
    for args in ([], ["room"], ["sim"], ["config"]):
        assert "..." not in cli(*args, "--help").out.partition("Commands:")[2]
