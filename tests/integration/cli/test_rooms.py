"""`penstock room …` on the store of the settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli, Ran
from tests.servers.penstock import run_penstock


def test_a_room_is_made_changed_and_shown(cli: Cli) -> None:
    made = cli("room", "put", "sale", "--capacity", "5", "--claim-ttl", "2m", "--json").json
    assert (made["capacity"], made["claim_ttl"], made["state"]) == (5, "2m", "open")
    assert cli("room", "pause", "sale", "--json").json["state"] == "paused"
    assert cli("room", "resume", "sale", "--json").json["state"] == "open"
    assert cli("room", "close", "sale").out == "sale is closed: 0 of 5 inside, 0 waiting\n"
    assert cli("room", "reset", "sale", "--yes", "--json").json["epoch"] == 2
    assert [room["room"] for room in cli("room", "list", "--json").json["items"]] == ["sale"]
    assert "sale" in cli("room", "list").out
    assert cli("room", "show", "sale", "--json").json["joined"] == 0


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

        assert (await room("put", "sale", "--capacity", "2", "--json")).json["capacity"] == 2
        assert (await room("join", "sale", "u1")).code == 0
        assert (await room("pause", "sale")).out.startswith("sale is paused")
        assert [one["room"] for one in (await room("list", "--json")).json["items"]] == ["sale"]
        assert (await room("show", "none")).code == 1
        assert "token" in (await asyncio.to_thread(cli, "room", "list", "--url", server.url)).err
