"""Writes the client without an event loop from the one with: a test says when to run it again.

python scripts/clients.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SDK = Path(__file__).parents[1] / "src" / "penstock" / "sdk"
FILES = {
    "async_client.py": "client.py",
    "async_rooms.py": "sync_rooms.py",
    "async_recurring.py": "sync_recurring.py",
}
WORDS = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"^from collections\.abc import Awaitable\n", ""),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncClient\b", "Client"),
    (r"\bAsync(Link|Rooms|Recurring|Gather)\b", r"Sync\1"),
    (r"\bAsyncSend\b", "Send"),
    (r"\basync_(link|rooms|recurring|gather)\b", r"sync_\1"),
    (r"\basyncio\b", "time"),
    (r"\ban Client\b", "a Client"),
    (r"\bwith an event loop\b", "without an event loop"),
)
"""What the one says, as a pattern → what the other says."""


def written(source: str, target: str) -> str:
    """A file of the client without an event loop, formatted."""
    text = (SDK / source).read_text()
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text, flags=re.MULTILINE)
    docstring, _, rest = text.partition("\n")
    text = f"{docstring}\n# Written by scripts/clients.py from {source}: change that one.\n{rest}"
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    name = ["--stdin-filename", str(SDK / target), "-"]
    fix = ["check", "-q", "--fix", "--unsafe-fixes", "--select", "I,C416,UP028"]
    for command in (fix, ["format", "-q"]):
        done = subprocess.run(
            [*ruff, *command, *name], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main() -> None:
    for source, target in FILES.items():
        (SDK / target).write_text(written(source, target))


if __name__ == "__main__":
    main()
