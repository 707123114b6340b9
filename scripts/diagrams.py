"""Draws the mermaid diagrams of docs/ into docs/images/diagrams/, light and dark.

GitHub draws them itself; the site shows these files, so that it loads no script from elsewhere.
Run it when a diagram has changed: python scripts/diagrams.py (needs npm and Chromium).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.site.diagrams import (  # noqa: E402 - found only from here on
    DRAWN,
    THEMES,
    diagrams,
    files,
)

MERMAID = "11.17.2"
CACHE = Path.home() / ".cache" / "penstock" / "mermaid"


def mermaid() -> Path:
    """mermaid's one file, from its npm package."""
    script = CACHE / MERMAID / "package" / "dist" / "mermaid.min.js"
    if not script.exists():
        script.parents[2].mkdir(parents=True, exist_ok=True)
        pack = ["npm", "pack", f"mermaid@{MERMAID}", "--silent"]
        done = subprocess.run(pack, cwd=CACHE, capture_output=True, text=True, check=True)
        with tarfile.open(CACHE / done.stdout.strip()) as package:
            package.extractall(script.parents[2], filter="data")
    return script


def draw(page: Page, name: str, code: str, scheme: str) -> str:
    options = {
        "startOnLoad": False,
        "theme": THEMES[scheme],
        "fontFamily": "sans-serif",
        "deterministicIds": True,
        "flowchart": {"htmlLabels": False},
        "htmlLabels": False,
    }
    drawn: str = page.evaluate(
        """async ([options, name, code]) => {
            mermaid.initialize(options);
            return (await mermaid.render(name, code)).svg;
        }""",
        [options, f"d{name}", code],
    )
    return drawn.replace("<br>", "<br/>") + "\n"


def main() -> int:
    DRAWN.mkdir(parents=True, exist_ok=True)
    for old in DRAWN.iterdir():
        if old.name not in files():
            old.unlink()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=mermaid())
        for name, code in diagrams().items():
            for scheme in THEMES:
                file = DRAWN / f"{name}-{scheme}.svg"
                if not file.exists():
                    file.write_text(draw(page, name, code, scheme))
                    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
