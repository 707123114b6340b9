"""The program in a terminal of 80 columns: tables, times, colours, questions, completion."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import TypeAlias

import pytest

from penstock.cli.show import Times, local_time, relative
from tests.integration.cli.conftest import Cli
from tests.integration.deaths import die

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
RED, YELLOW = "\x1b[31m", "\x1b[33m"
HOUR = 3_600_000


@dataclass(frozen=True)
class Seen:
    """What somebody at the terminal sees."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        return ANSI.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


Terminal: TypeAlias = Callable[..., Seen]


@pytest.fixture
def terminal(folder: Path) -> Terminal:
    """Run `penstock …` in a terminal, and answer its question."""

    def run(*args: str, answer: str = "", env: dict[str, str] | None = None) -> Seen:
        ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        clean = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**clean, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            seen += piece
            if answer and b"[y/N]" in seen:
                os.write(ours, answer.encode())
                answer = ""
        os.close(ours)
        return Seen(process.wait(), seen.decode().replace("\r\n", "\n"))

    return run


@pytest.mark.slow
def test_an_id_is_never_folded_and_due_is_told_from_now(cli: Cli, terminal: Terminal) -> None:
    ids = [cli("schedule", "--delay", "1h", "--json").json["id"] for _ in range(2)]
    cli("schedule", "--id", "long", "--delay", "3d", "--key", "k" * 200)
    seen = terminal("list")
    assert [line.split()[0] for line in seen.lines[1:]] == [*ids, "long"]
    assert "in 59 min" in seen.lines[1]
    assert "in 2 d 23 h" in seen.lines[3]
    assert seen.lines[3].rstrip().endswith("…")
    assert all(len(line.rstrip()) <= 80 for line in seen.lines)
    assert "error" not in seen.lines[0], "an empty column is left out"
    assert "T" in cli("list").out.splitlines()[1].split()[3], "RFC 3339 where nobody looks"


@pytest.mark.slow
def test_a_rule_is_one_line_of_a_narrow_terminal(cli: Cli, terminal: Terminal) -> None:
    cron = ("--cron", "0 9 * * mon-fri", "--zone", "Europe/Berlin")
    cli("recurring", "put", "daily-report", *cron)
    heading, line = terminal("recurring", "list").lines
    assert line.startswith("daily-report  active")
    assert max(len(heading), len(line)) <= 80
    assert "At 09:00, Monday to Friday (Europe/Berlin)" in cli("recurring", "list").out


@pytest.mark.slow
def test_states_have_colours_unless_somebody_wants_none(
    cli: Cli, folder: Path, terminal: Terminal
) -> None:
    die(folder, "d1")
    assert f"{RED}dead" in terminal("list").raw
    assert RED not in terminal("list", env={"NO_COLOR": "1"}).raw
    assert "\x1b" not in cli("list").out
    cli("route", "pause", "default")
    assert f"{YELLOW}paused" in terminal("route", "list").raw


@pytest.mark.slow
def test_what_destroys_says_how_much_and_asks(cli: Cli, folder: Path, terminal: Terminal) -> None:
    die(folder, "d1", "d2")
    for _ in range(3):
        cli("schedule", "--delay", "1h", "--key", "k")
    cli("room", "put", "sale", "--capacity", "0")
    cli("room", "join", "sale", "ann")
    cli("recurring", "put", "poll", "--every", "15m")
    cli("policy", "pace", "slow", "--rate", "1/s")
    cli("suppression", "put", "optout", '{"keys":["ann","bob"]}')
    questions = {
        "cancel --all": "Cancel 3 scheduled messages?",
        "cancel --key k": "Cancel 3 scheduled messages?",
        "dead redrive --all": "Send 2 dead messages once more?",
        "dead delete --error 410": "Delete 2 dead messages for good?",
        "forget --key k": "Erase 5 messages and the counters of k for good?",
        "room reset sale": "Remove 1 who wait and 0 who hold a slot of sale?",
        "recurring delete poll": "Delete the rule poll (Every 15 minutes)?",
        "policy delete slow": "Delete the pace slow and its counters?",
        "suppression delete optout": "Delete the list optout with 2 keys?",
    }
    for command, question in questions.items():
        refused = terminal(*command.split(), answer="n\n")
        assert (refused.code, question in refused.text) == (1, True), refused.text
        assert "nothing was changed" in refused.text
    assert len(cli("list", "--json").json["items"]) == 5
    assert "2 of 2 redriven" in terminal("dead", "redrive", "--all", answer="y\n").text
    assert "[y/N]" not in terminal("cancel", "--all", "--yes").text
    unknown = terminal("recurring", "delete", "nope")
    assert (unknown.code, "[y/N]" in unknown.text) == (1, False)
    assert "[y/N]" not in terminal("dead", "delete", "--all", "--dry-run").text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("penstock schedule pu", ["push"]),
        ("penstock route pause ", ["default", "push"]),
        ("penstock list --route pu", ["push"]),
        ("penstock --config other.toml list --route ", ["default", "other"]),
        ("penstock --config other.toml route pause ", ["default", "other"]),
        ("penstock recurring put new --route pu", ["push"]),
        ("penstock recurring pause ", ["daily-report", "poll"]),
        ("penstock schedule --on-conflict ", ["keep", "replace", "earliest"]),
        ("penstock policy delete ", ["daily", "night"]),
        ("penstock room show ", ["sale"]),
        ("penstock list --state dea", ["dead"]),
    ],
)
def test_names_are_completed(cli: Cli, folder: Path, words: str, found: list[str]) -> None:
    (folder / "penstock.toml").write_text(
        '[routes.push]\n[policies.daily]\nkind = "pace"\nrate = "1/s"\n'
        '[recurring.daily-report]\nevery = "1d"\n'
    )
    (folder / "other.toml").write_text("[routes.other]\n")
    cli("room", "put", "sale", "--capacity", "1")
    cli("policy", "pace", "night", "--rate", "1/s")
    cli("recurring", "put", "poll", "--every", "15m")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'penstock'; from penstock.cli import main; main()",
        ],
        env={
            **os.environ,
            "_PENSTOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == found


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (0, "now"),
        (999, "now"),
        (59_000, "in 59 s"),
        (HOUR - 1, "in 59 min"),
        (HOUR, "in 1 h"),
        (26 * HOUR, "in 1 d 2 h"),
        (-90_000, "1 min ago"),
        (-HOUR - 120_000, "1 h 2 min ago"),
    ],
)
def test_a_moment_is_told_by_how_far_it_is(ahead: int, words: str) -> None:
    assert relative(10**12 + ahead, 10**12) == words


def test_local_times_carry_their_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    try:
        local = Times(local=True, terminal=True)
        assert local.exact(0) == "1970-01-01T09:00:00.000+09:00"
        assert local.near(0) == "1970-01-01 09:00+09:00"
        assert Times(local=True, terminal=False).near(0) == local.exact(0)
        assert local_time(61_000, 0) == "09:01:01+09:00"
        assert Times(local=False, terminal=False).near(0) == "1970-01-01T00:00:00.000Z"
    finally:
        monkeypatch.undo()
        time.tzset()
