"""`penstock room …` on the store of the settings."""

from __future__ import annotations

from tests.integration.cli.conftest import Cli


def test_a_room_is_made_changed_and_shown(cli: Cli) -> None:
    made = cli("room", "put", "sale", "--capacity", "5", "--claim-ttl", "2m", "--json").json
    assert (made["capacity"], made["claim_ttl"], made["state"]) == (5, "2m", "open")
    assert cli("room", "pause", "sale", "--json").json["state"] == "paused"
    assert cli("room", "resume", "sale", "--json").json["state"] == "open"
    assert cli("room", "close", "sale").out == "sale is closed: 0 of 5 inside, 0 waiting\n"
    assert cli("room", "reset", "sale", "--json").json["epoch"] == 2
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
