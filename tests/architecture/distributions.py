"""What an install with some extras brings: pyproject.toml, and the metadata of what it names."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires, version
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


def needed(extras: Iterable[str] = (), versions: Mapping[str, str] | None = None) -> set[str]:
    """The names of all distributions that `pip install penstock-engine[extras]` brings.

    `versions`: a distribution that is installed in another version than this one asks for other
    things than the one that is meant, so its metadata is not followed.
    """
    found: dict[str, set[str]] = {}
    waiting = [(PROJECT["name"], frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        seen = found.setdefault(name, set())
        if seen >= wanted and seen:
            continue
        seen |= {"", *wanted}
        if versions is None or name == PROJECT["name"] or versions.get(name) == version(name):
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


@cache
def _owners() -> Mapping[str, list[str]]:
    """Of each module that is installed, the distributions; every file of each is read for it."""
    return packages_distributions()


def run_with(extras: Iterable[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that sees nothing but what an install with `extras` brings."""
    there = needed(extras)
    absent = [
        module
        for module, owners in _owners().items()
        if not {canonicalize_name(owner) for owner in owners} & there
    ]
    return subprocess.run(
        [sys.executable, "-c", _ALONE % json.dumps(absent) + code],
        capture_output=True,
        text=True,
        check=False,
    )
