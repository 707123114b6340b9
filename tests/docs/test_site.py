"""The site of docs/ is whole: every page in its place, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.version import __version__
from scripts.site import diagrams, versions
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
    built = tmp_path / __version__
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > 30
    loaded = {page.name: LOADED.findall(page.read_text()) for page in pages}
    assert not {name: found for name, found in loaded.items() if found}
    for folder in (built, tmp_path):
        listed = (folder / "llms.txt").read_text()
        for name in re.findall(r"\]\(([^)]+)\)", listed):
            assert (folder / name).exists(), name
    assert (tmp_path / "latest" / "index.html").samefile(built / "index.html")
    assert "assets/versions.js" in (built / "start" / "install.html").read_text()


def test_versions_stand_beside_each_other_with_the_newest_as_the_latest(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.10.0rc1"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "index.html").touch()
        (tmp_path / name / "llms.txt").write_text(f"- [{name}](run/x.html): one\n")
    versions.write(tmp_path)
    versions.write(tmp_path)  # once more, with all of it there
    assert json.loads((tmp_path / "versions.json").read_text()) == [
        {"version": "0.10.0", "title": "0.10.0", "aliases": ["latest"]},
        {"version": "0.10.0rc1", "title": "0.10.0rc1", "aliases": []},
        {"version": "0.9.0", "title": "0.9.0", "aliases": []},
    ]
    assert (tmp_path / "latest").resolve().name == "0.10.0"
    assert (tmp_path / "llms.txt").read_text() == "- [0.10.0](latest/run/x.html): one\n"
