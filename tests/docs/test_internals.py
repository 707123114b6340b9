"""The notes on internals name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTES = sorted((ROOT / "docs" / "internals").glob("*.md"))
FILE = re.compile(r"(?:redis_kit|stores)/[\w/]+\.(?:py|lua|sql)\b")


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.name)
def test_every_file_that_is_named_exists(note: Path) -> None:
    named = set(FILE.findall(note.read_text()))
    assert named
    assert not [name for name in sorted(named) if not (ROOT / "src" / "penstock" / name).is_file()]
