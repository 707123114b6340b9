"""Every command that a page shows exists, word by word: also where it is not run."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from typing import Any

import pytest
import typer
from typer.main import get_command

import penstock.settings
from penstock.api.verbs import VERBS
from penstock.cli.app import build
from penstock.contrib import SYSTEMS, mounts
from tests.docs.blocks import ROOT, Block, blocks
from tests.docs.shell import commands

SHELL = [block for block in blocks("sh") if not block.page.name.endswith("cli.md")]
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):8700(/[^\s'\"]*)")
UsageError: Any = typer.BadParameter.__mro__[1]  # of the click that typer has inside
BY_HAND = {"/docs", "/openapi.json", "/", "/rooms/sale"}


@cache
def _app() -> Any:
    return get_command(build())


@cache
def targets() -> frozenset[str]:
    found = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return frozenset(found) | {"ticks", "sender", "sms", "dispatcher", "scheduler"}


@cache
def extras() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return frozenset(project["optional-dependencies"])


@cache
def paths() -> tuple[re.Pattern[str], ...]:
    verbs = list(VERBS)
    for mount in mounts(penstock.settings.given(contrib=[*SYSTEMS])):
        verbs += mount.verbs
    return tuple(re.compile(re.sub(r"\{\w+\}", "[^/?]+", verb.path) + r"(\?.*)?") for verb in verbs)


def check_penstock(words: list[str]) -> None:
    """The command exists, and takes these options and this many arguments."""
    command: Any = _app()
    context = command.context_class(command, info_name="penstock")
    rest = [word for word in words if word != "--help"]
    while hasattr(command, "commands"):
        while rest and rest[0].startswith("-"):
            rest = rest[1:]
        if not rest:
            return
        name = rest.pop(0)
        assert name in command.commands, f"no command {name!r} in {' '.join(words)}"
        command = command.commands[name]
        context = command.context_class(command, parent=context, info_name=name)
    try:
        command.make_parser(context).parse_args(rest)
    except UsageError as exc:
        raise AssertionError(f"{' '.join(words)}: {exc.format_message()}") from None


def check(words: list[str]) -> None:
    if words[0] == "sudo":
        words = words[1:]
    program = words[0].rpartition("/")[2]
    if program == "penstock":
        check_penstock(words[1:])
    elif program in {"python", "python3"} and words[1:3] == ["-m", "penstock"]:
        check_penstock(words[3:])
    elif program == "make":
        named = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        assert set(named) <= targets(), words
    elif program in {"python", "python3"} and words[1:3] == ["-m", "bench"]:
        assert all(
            (ROOT / "bench" / f"run_{name.replace('-', '_')}.py").exists()
            for name in words[3:4]
            if not name.startswith("-") and name != "profile"
        ), words
    elif words[0].startswith(("scripts/", "examples/", "deploy/")):
        assert (ROOT / words[0]).exists(), words
    elif program in {"python", "python3"} and words[1:2] and words[1].endswith(".py"):
        places = (ROOT / words[1], *(folder / words[1] for folder in (ROOT / "examples").iterdir()))
        assert any(place.exists() for place in places), words
    elif program == "pip" or words[1:3] == ["-m", "pip"]:
        for named in re.findall(r"(?:penstock-engine|\.)\[([\w,]+)\]", " ".join(words)):
            assert set(named.split(",")) <= extras(), words


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_a_shell_example_names_only_what_exists(block: Block) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=block.code, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for words in commands(block.code):
        check(words)
    for path in ADDRESS.findall(block.code):
        plain = path.rstrip(")`.,")
        assert plain in BY_HAND or any(known.fullmatch(plain) for known in paths()), plain


def test_the_check_finds_what_does_not_exist() -> None:
    for line in ("penstock lst", "penstock list --stat dead", "make tick", "scripts/nothing"):
        (words,) = commands(line)
        with pytest.raises(AssertionError):
            check(words)


def test_every_extra_is_on_the_page_that_installs() -> None:
    page = (ROOT / "docs" / "start" / "install.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert not [name for name in extras if f"`{name}`" not in page]
