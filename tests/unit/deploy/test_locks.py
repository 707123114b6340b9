"""The lists that the image is installed from: complete, of tested versions, with hashes alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.architecture.distributions import PROJECT, needed

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
_LINE = re.compile(r"([A-Za-z0-9._-]+)==([^ ]+)((?: --hash=sha256:[0-9a-f]{64})+)")
CONSTRAINTS: dict[str, str] = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines()
    )
    if version
}


def locked(file: Path) -> dict[str, str]:
    lines = re.sub(r" *\\\n *", " ", file.read_text()).splitlines()
    found = [_LINE.fullmatch(line) for line in lines]
    assert all(found), "a line is more than a name, a version and hashes: run scripts/lock"
    return {canonicalize_name(one[1]): one[2] for one in found if one is not None}


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.name)
def test_versions_are_those_everything_is_tested_with(file: Path) -> None:
    for name, version in locked(file).items():
        assert CONSTRAINTS.get(name) == version, f"{name}: run scripts/lock"


def test_the_image_has_what_every_extra_brings() -> None:
    image = locked(ROOT / "requirements/image.txt")
    missing = needed(["all"], image) - {PROJECT["name"]} - image.keys()
    assert missing == set(), "run scripts/lock"


def test_the_image_installs_nothing_without_a_hash() -> None:
    installs = re.findall(r"pip install [^\n\\&]*", (ROOT / "Dockerfile").read_text())
    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-index" in one for one in installs)
