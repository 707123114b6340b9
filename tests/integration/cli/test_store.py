"""`penstock store copy|backup|restore`: what is pending, whole and once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from penstock.cli import show
from tests.integration.cli.conftest import Cli

HERE, THERE = "sqlite:///here.db", "sqlite:///there.db"


def put(cli: Cli, *ids: str, store: str = HERE) -> None:
    for name in ids:
        done = cli("schedule", "default", "--id", name, "--delay", "1h", "--store", store)
        assert done.code == 0, done.err


def listed(cli: Cli, store: str) -> dict[str, str]:
    return {m["id"]: m["state"] for m in cli("list", "--json", "--store", store).json["items"]}


def test_copy_moves_what_is_pending_and_says_so(cli: Cli) -> None:
    put(cli, "a", "b")
    done = cli("store", "copy", HERE, THERE)
    assert (done.code, done.err) == (0, "")
    assert "2 messages (0 dead, 0 known there)" in done.out
    assert listed(cli, THERE) == {"a": "scheduled", "b": "scheduled"}
    assert listed(cli, HERE) == {"a": "cancelled", "b": "cancelled"}
    put(cli, "c")
    again = cli("store", "copy", HERE, THERE, "--json").json
    assert (again["status"], again["copied"]["moved"]) == ("ok", 1)


def test_copy_names_the_recurring_rules_of_the_settings(cli: Cli, folder: Path) -> None:
    put(cli, "a")
    rules = "".join(
        f'[recurring.r{number:02}]\nroute = "default"\nevery = "1h"\n' for number in range(12)
    )
    (folder / "penstock.toml").write_text(rules)
    last = cli("store", "copy", HERE, THERE).out.splitlines()[-1]
    assert "[recurring] in penstock.toml has r00, r01," in last
    assert "r09 and 2 more: only a server on TO may start with it" in last
    shown = cli("store", "copy", HERE, THERE, "--json").json
    assert shown["rules_in_settings"] == [f"r{number:02}" for number in range(12)]
    (folder / "penstock.toml").unlink()
    assert "[recurring]" not in cli("store", "copy", HERE, THERE).out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["copy", "sqlite:///none.db", THERE], "nothing to read"),
        (["copy", HERE, HERE], "same store"),
        (["copy", "memory://", THERE], "in-memory"),
        (["copy", HERE, "memory://"], "in-memory"),
        (["restore", "none.gz"], "none.gz"),
    ],
)
def test_what_cannot_work_is_refused(cli: Cli, arguments: list[str], why: str) -> None:
    put(cli, "a")
    done = cli("store", *arguments)
    assert done.code != 0
    assert why in done.err
    assert listed(cli, HERE) == {"a": "scheduled"}


def test_a_backup_is_restored_and_nothing_twice(cli: Cli, folder: Path) -> None:
    put(cli, "a", "b")
    done = cli("store", "backup", "saved.gz", "--store", HERE)
    assert "2 × message" in done.out, done.err
    assert (folder / "saved.gz").stat().st_mode & 0o077 == 0
    assert not (folder / "saved.gz.part").exists()
    assert "is sound: 2 × message" in cli("store", "restore", "saved.gz", "--check").out
    put(cli, "a", store=THERE)
    done = cli("store", "restore", "saved.gz", "--store", THERE)
    assert "1 × message, 1 × message known already" in done.out
    assert listed(cli, THERE) == {"a": "scheduled", "b": "scheduled"}


@pytest.mark.parametrize("damage", ["cut", "line", "byte", "more", "other"])
def test_nothing_of_a_damaged_backup_is_restored(cli: Cli, folder: Path, damage: str) -> None:
    put(cli, "a", "b")
    cli("store", "backup", "saved.gz", "--store", HERE)
    file = folder / "saved.gz"
    data = file.read_bytes()
    lines = gzip.decompress(data).splitlines(keepends=True)
    if damage == "cut":
        file.write_bytes(data[:-20])
    elif damage == "line":
        file.write_bytes(gzip.compress(b"".join(lines[:1] + lines[2:])))
    elif damage == "byte":
        file.write_bytes(gzip.compress(b"".join(lines).replace(b'"route":"def', b'"route":"dee')))
    elif damage == "more":
        file.write_bytes(data + gzip.compress(lines[1]))
    else:
        file.write_bytes(gzip.compress(b'{"id":"a"}\n'))
    done = cli("store", "restore", "saved.gz", "--store", THERE)
    assert done.code == 1
    assert "saved.gz" in done.err
    assert not (folder / "there.db").exists()


def test_progress_is_a_bar_where_the_total_is_known() -> None:
    progress = show.progress("copying")
    progress.add(50)
    assert progress.text == "copying … 50"
    progress.total = 200
    assert "25%" in progress.text
    assert progress.text.endswith("50 of 200")
    progress.add(300)
    assert "100%" in progress.text
