"""The site of docs/ is whole: every page in its place, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site import diagrams
from tests.docs.blocks import ROOT

LOADED = re.compile(r"<(?:script|img|link|iframe)[^>]*\s(?:src|href)=\"?(https?:[^\"\s>]+)")


def test_every_diagram_is_drawn_as_it_is_written() -> None:
    drawn = {path.name for path in diagrams.DRAWN.iterdir()}
    assert drawn == diagrams.files(), "python scripts/diagrams.py"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    """Strict: a broken link or anchor, or a page that is not in the navigation, ends the build."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    loaded = {page.name: LOADED.findall(page.read_text()) for page in pages}
    assert not {name: found for name, found in loaded.items() if found}
    listed = (tmp_path / "llms.txt").read_text()
    for name in re.findall(r"\]\(([^)]+)\)", listed):
        assert (tmp_path / name).exists(), name
