"""The command line in this process: fast, and each test in a folder of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli.app import build


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed for machines; one value on one line."""
        assert self.code == 0, self.err
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.err)["error"]
        return error


Cli: TypeAlias = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_CONFIG", "PENSTOCK_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@functools.cache
def _commands() -> Any:
    """Every command, put together once: that takes four times as long as most of them run."""
    return get_command(build())


@pytest.fixture
def cli(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `penstock …` here."""
    monkeypatch.setattr("typer.testing._get_command", lambda _: _commands())
    runner, app = CliRunner(), build()

    def run(*args: str, stdin: bytes | None = None) -> Ran:
        done = runner.invoke(app, args, input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    return run
