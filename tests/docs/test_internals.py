"""The notes on internals and the page on architecture name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTES = [
    DOCS / "concepts" / "architecture.md",
    *(
        DOCS / "internals" / f"{name}.md"
        for name in ("formats", "redis-calls", "sql-steps", "verbs")
    ),
]
FILE = re.compile(
    r"(?:flow|rooms|model|limits|ports|redis_kit|stores|api|sdk)/[\w/]+\.(?:py|lua|sql)\b"
)
FOLDER = re.compile(r"`(\w+)/`")


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.name)
def test_every_file_that_is_named_exists(note: Path) -> None:
    named = set(FILE.findall(note.read_text()))
    assert named
    assert not [name for name in sorted(named) if not (ROOT / "src" / "penstock" / name).is_file()]


def test_the_tree_is_drawn_with_every_package() -> None:
    page = NOTES[0].read_text()
    drawn = set(FOLDER.findall(page))
    packages = {path.parent.name for path in (ROOT / "src" / "penstock").glob("*/__init__.py")}
    assert packages - drawn == {"v1"}, "v1 is generated from the proto"
    assert drawn - packages == set()
