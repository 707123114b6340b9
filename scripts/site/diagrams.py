"""The mermaid diagrams of docs/, by the names of the files that show them on the site."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAWN = ROOT / "docs" / "images" / "diagrams"
BLOCK = re.compile(r"^```mermaid\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
THEMES = {"light": "neutral", "dark": "dark"}


def name_of(code: str) -> str:
    """What a diagram's files are called by: they are drawn anew when its text changes."""
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def diagrams() -> dict[str, str]:
    """Every diagram of docs/ by name."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    found = (match["code"] for page in pages for match in BLOCK.finditer(page.read_text()))
    return {name_of(code): code for code in found}


def files() -> set[str]:
    """What docs/images/diagrams/ must hold, and nothing else."""
    return {f"{name}-{scheme}.svg" for name in diagrams() for scheme in THEMES}
