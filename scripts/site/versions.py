"""The versions of the site that stand beside each other in one folder, and what leads between them.

`<site>/0.2.0/` is one version. `latest` is a link to the newest, `versions.json` lists them for
programs and `versions.js` for pages: a page that is opened from a folder may load a script, and
nothing else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

LATEST = "latest"
INDEX = """<!doctype html>
<meta charset="utf-8">
<title>Penstock</title>
<meta http-equiv="refresh" content="0; url=latest/index.html">
<a href="latest/index.html">Penstock</a>
"""
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?")
_LINK = re.compile(r"(\]\()(?=[^)]+\.html\))")


def order(version: str) -> tuple[int, int, int, bool, str]:
    """A release comes after its candidates."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"{version} is no version")
    major, minor, patch, candidate = found.groups()
    return int(major), int(minor), int(patch), candidate is None, candidate or ""


def versions(site: Path) -> list[dict[str, Any]]:
    """Every version that is built here, the newest first."""
    built = [path.name for path in site.iterdir() if _VERSION.fullmatch(path.name)]
    newest_first = sorted(built, key=order, reverse=True)
    return [
        {"version": name, "title": name, "aliases": [LATEST] if number == 0 else []}
        for number, name in enumerate(newest_first)
    ]


def write(site: Path) -> None:
    """Write what stands above the versions: run after one of them was built."""
    found = versions(site)
    (site / "versions.json").write_text(json.dumps(found, indent=2) + "\n")
    pages = {
        one["version"]: sorted(
            str(page.relative_to(site / one["version"]))
            for page in (site / one["version"]).rglob("*.html")
        )
        for one in found
    }
    (site / "versions.js").write_text(f"showVersions({json.dumps(found)}, {json.dumps(pages)});\n")
    link = site / LATEST
    link.unlink(missing_ok=True)
    link.symlink_to(found[0]["version"], target_is_directory=True)
    (site / "index.html").write_text(INDEX)
    (site / "llms.txt").write_text(_LINK.sub(rf"\1{LATEST}/", (link / "llms.txt").read_text()))
