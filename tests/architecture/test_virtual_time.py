"""Waiting and chance are injected: `flow/` and `rooms/` take neither by themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
FILES = sorted((*SOURCE.glob("flow/**/*.py"), *SOURCE.glob("rooms/**/*.py")))
FORBIDDEN_MODULES = {"time", "threading", "uuid", "socket", "secrets"}
FORBIDDEN_CALLS = {
    "timeout", "timeout_at", "wait_for", "to_thread", "urandom", "getrandom", "utcnow", "today",
    "call_later", "call_at", "time", "run_in_executor",
}  # fmt: skip
WAITING = {"random", "asyncio"}
"""Modules of which nothing is imported by name: it is to be seen where it comes from."""


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _wrong(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in FORBIDDEN_MODULES)
            yield from (f"{a.name} as" for a in node.names if a.name in WAITING and a.asname)
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES | WAITING:
            yield f"from {node.module}"
        elif isinstance(node, ast.Call):
            yield from _wrong_call(node)


def _wrong_call(node: ast.Call) -> Iterator[str]:
    name = _dotted(node.func)
    last = name.rpartition(".")[2]
    if name == "asyncio.sleep":
        wait = node.args[0]
        if not (isinstance(wait, ast.Constant) and wait.value == 0):  # 0 only gives way
            yield name
        return
    waits = last in FORBIDDEN_CALLS and "clock" not in name.lower()
    waits = waits or any(keyword.arg == "timeout" for keyword in node.keywords)  # asyncio.wait
    reads = name.lower().endswith("datetime.now")
    draws = name.startswith("random.")  # a source of its own (random.Random()) is no better
    if waits or reads or draws:
        yield name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_reads_the_time_sleeps_or_draws_by_itself(path: Path) -> None:
    assert list(_wrong(ast.parse(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import asyncio\nasync def f(): await asyncio.sleep(1)",
        "import random\nx = random.random()",
        "import random\nchance = random.Random()",
        "import secrets",
        "loop.call_later(1, f)",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.now()",
        "import asyncio as aio",
        "from asyncio import sleep",
        "import asyncio\nasync def f(): await asyncio.wait(tasks, timeout=1)",
        "import asyncio\nasync def f():\n  async with asyncio.timeout_at(1): pass",
    ],
)
def test_the_search_finds_what_it_is_for(code: str) -> None:
    assert list(_wrong(ast.parse(code)))
