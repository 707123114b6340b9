"""What an install with some extras brings: pyproject.toml, and the metadata of what it names."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

_ALONE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
absent = set(%s)
sys.meta_path.insert(0, Absent())
"""


def needed(extras: Iterable[str] = ()) -> set[str]:
    """The names of all distributions that `pip install penstock-engine[extras]` brings."""
    found: dict[str, set[str]] = {}
    waiting = [(PROJECT["name"], frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        seen = found.setdefault(name, set())
        if seen >= wanted and seen:
            continue
        seen |= {"", *wanted}
        waiting += _asked_for(name, seen)
    return set(found)


def _asked_for(name: str, extras: set[str]) -> Iterator[tuple[str, frozenset[str]]]:
    if name == PROJECT["name"]:
        optional = PROJECT["optional-dependencies"]
        lines = [*PROJECT["dependencies"], *(one for e in extras if e for one in optional[e])]
    else:
        lines = requires(name) or []
    for line in lines:
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras):
            yield canonicalize_name(one.name), frozenset(one.extras)


def run_with(extras: Iterable[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that sees nothing but what an install with `extras` brings."""
    there = needed(extras)
    absent = [
        module
        for module, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & there
    ]
    return subprocess.run(
        [sys.executable, "-c", _ALONE % json.dumps(absent) + code],
        capture_output=True,
        text=True,
        check=False,
    )
