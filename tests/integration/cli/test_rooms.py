"""`penstock room …` on the store of the settings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Cli, Ran
from tests.servers.penstock import run_penstock


def test_a_room_is_made_changed_and_shown(cli: Cli) -> None:
    made = cli("room", "put", "sale", "--capacity", "5", "--claim-ttl", "2m", "--json").json
    assert (made["capacity"], made["claim_ttl"], made["state"]) == (5, "2m", "open")
    assert cli("room", "pause", "sale", "--json").json["state"] == "paused"
    assert cli("room", "resume", "sale", "--json").json["state"] == "open"
    assert cli("room", "close", "sale").out == "sale is closed: 0 of 5 slots in use, 0 waiting\n"
    assert cli("room", "reset", "sale", "--yes", "--json").json["epoch"] == 2
    assert [room["room"] for room in cli("room", "list", "--json").json["items"]] == ["sale"]
    assert "sale" in cli("room", "list").out
    assert cli("room", "show", "sale", "--json").json["joined"] == 0


SETTINGS = (
    "capacity", "admit_rate", "claim_ttl", "session_ttl", "wait_grace", "lanes", "lottery",
    "opens_at", "public", "state",
)  # fmt: skip


def settings(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in SETTINGS}


def test_a_room_keeps_what_a_change_does_not_name(cli: Cli) -> None:
    cli(
        *("room", "put", "sale", "--capacity", "20", "--admit-rate", "5/m", "--claim-ttl", "30s"),
        *("--session-ttl", "none", "--lane", "vip=3", "--lottery", "--public"),
        *("--opens-at", "2020-01-01T00:00:00Z"),
    )
    cli("room", "pause", "sale")
    before = settings(cli("room", "show", "sale", "--json").json)
    assert (before["admit_rate"], before["session_ttl"], before["public"]) == ("5/m", None, True)
    changed = cli("room", "put", "sale", "--capacity", "19", "--json").json
    assert settings(changed) == {**before, "capacity": 19}
    lanes = cli("room", "put", "sale", "--lane", "gold=2", "--json").json
    assert settings(lanes) == {**before, "capacity": 19, "lanes": {"default": 1, "gold": 2}}


def test_what_a_room_has_can_be_taken_away(cli: Cli) -> None:
    cli("room", "put", "sale", "--admit-rate", "5/m", "--opens-at", "2020-01-01T00:00:00Z")
    cli("room", "put", "sale", "--lottery", "--public")
    limits = ("--admit-rate", "none", "--opens-at", "none", "--wait-grace", "none")
    bare = cli("room", "put", "sale", *limits, "--no-lottery", "--no-public", "--json").json
    assert (bare["admit_rate"], bare["opens_at"], bare["wait_grace"]) == (None, None, None)
    assert (bare["lottery"], bare["public"], bare["claim_ttl"]) == (False, False, "2m")


def test_what_is_wrong_is_said(cli: Cli) -> None:
    assert cli("room", "show", "none").code == 1
    assert cli("room", "put", "sale", "--admit-rate", "fast", "--json").error["field"] == (
        "admit_rate"
    )
    cli("room", "put", "sale")
    assert cli("room", "revoke", "sale", "nobody", "--json").error["field"] == "user"


def test_a_visitor_lines_up_is_looked_at_and_put_out(cli: Cli) -> None:
    cli("room", "put", "sale", "--capacity", "0", "--lane", "vip=3", "--lottery")
    assert cli("room", "join", "sale", "u1", "--lane", "vip").out == "u1 is WAITING, place 1 of 1\n"
    assert cli("room", "ticket", "sale", "u1").out == "u1 is WAITING, place 1 of 1\n"
    assert cli("room", "ticket", "sale", "u1", "--json").json["lane"] == "vip"
    assert cli("room", "revoke", "sale", "u1").out == "u1 is REVOKED\n"
    assert cli("room", "put", "sale", "--lane", "vip", "--json").error["field"] == "lanes"


@pytest.mark.slow
async def test_a_room_of_a_running_server(cli: Cli, folder: Path) -> None:
    config = 'store = "sqlite:///other.db"\n[api]\nhttp = "127.0.0.1:@PORT@"\ntokens = ["t"]\n'
    async with run_penstock(folder, config) as server:
        there = ("--url", server.url, "--token", "t")

        async def room(*arguments: str) -> Ran:
            return await asyncio.to_thread(cli, "room", *arguments, *there)

        made = await room("put", "sale", "--capacity", "2", "--public", "--json")
        assert (made.json["capacity"], made.json["public"]) == (2, True)
        changed = await room("put", "sale", "--capacity", "3", "--json")
        assert (changed.json["capacity"], changed.json["public"]) == (3, True)
        assert (await room("join", "sale", "u1")).code == 0
        assert (await room("pause", "sale")).out.startswith("sale is paused")
        assert [one["room"] for one in (await room("list", "--json")).json["items"]] == ["sale"]
        assert (await room("show", "none")).code == 1
        assert "token" in (await asyncio.to_thread(cli, "room", "list", "--url", server.url)).err
