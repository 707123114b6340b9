"""The code blocks of README.md, docs/ and examples/, with what a comment above them says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
NEEDS_SERVER = "<!-- needs a server -->"
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

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(kind: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            if match["kind"] == kind:
                line = text.count("\n", 0, match.start("code")) + 1
                server = match["before"].strip() == NEEDS_SERVER
                found.append(Block(page, line, kind, match["code"], server))
    return found
