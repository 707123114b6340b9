"""The code blocks of README.md and docs/, with what a comment above them says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS_SERVER = "<!-- needs a server -->"
NOT_RUN = "<!-- not run: "
"""Followed by the reason; such a block is checked word by word only."""
_BLOCK = re.compile(
    r"^(?P<before>[^\n]*)\n```(?P<kind>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    kind: str
    code: str
    needs_server: bool
    not_run: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(kind: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            if match["kind"] == kind:
                line = text.count("\n", 0, match.start("code")) + 1
                before = match["before"].strip()
                server, not_run = before == NEEDS_SERVER, before.startswith(NOT_RUN)
                found.append(Block(page, line, kind, match["code"], server, not_run))
    return found
