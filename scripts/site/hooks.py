"""What mkdocs asks while it builds the site: diagrams, links out of docs/, llms.txt, versions.

GitHub shows the same pages as they are, so nothing in them is written for one renderer only.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.site import versions  # noqa: E402 - found only from here on
from scripts.site.diagrams import BLOCK, DRAWN, name_of  # noqa: E402

log = logging.getLogger("mkdocs.hooks.penstock")
_VERSION = re.compile(r'__version__ = "(.+)"')
_LINK = re.compile(r"(\]\()(\.\./[^)#\s]*)([^)]*\))")
_PICTURE = re.compile(
    r"<picture>\s*<source [^>]*srcset=\"(?P<dark>[^\"]+)\">\s*"
    r"<img alt=\"(?P<alt>[^\"]*)\" src=\"(?P<light>[^\"]+)\">\s*</picture>"
)


def version() -> str:
    found = _VERSION.search((ROOT / "src" / "penstock" / "version.py").read_text())
    if found is None:
        raise ValueError("src/penstock/version.py names no version")
    return found[1]


def on_config(config: Any) -> Any:
    """One version is built, into a folder of its name."""
    config.site_dir = str(Path(config.site_dir) / version())
    config.copyright = f"Penstock {version()} · Apache-2.0"
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """The page with drawn diagrams, both schemes' pictures, and links into the repository."""
    up = "../" * page.file.src_uri.count("/")
    here = ROOT / "docs" / page.file.src_uri
    text = BLOCK.sub(lambda match: _diagram(match, up), markdown)
    text = _PICTURE.sub(_both_schemes, text)
    return _LINK.sub(lambda match: _outward(match, here, config.extra["repository"]), text)


def on_post_build(config: Any) -> None:
    site = Path(config.site_dir)
    (site / "llms.txt").write_text(llms(config))
    for script in ("iframe-worker.js", "versions.js"):
        shutil.copy(ROOT / "scripts" / "site" / script, site / "assets")
    versions.write(site.parent)


def llms(config: Any) -> str:
    """Every page with its first sentence, in the form of llmstxt.org."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for part in config.nav:
        ((title, below),) = part.items()
        pages = [below] if isinstance(below, str) else below
        lines += [f"## {title}", ""]
        lines += [_line(page) for page in pages]
        lines.append("")
    return "\n".join(lines)


def _line(page: str) -> str:
    text = (ROOT / "docs" / page).read_text()
    heading = text.partition("\n")[0].removeprefix("# ")
    prose = (part for part in text.split("\n\n")[1:] if part[:1].isalpha())
    first = re.split(r"(?<=\.)\s", " ".join(next(prose, "").split()))[0]
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", first).replace("**", "")
    name = re.sub(r"(^|/)README\.md$", r"\1index.md", page).removesuffix(".md")
    return f"- [{heading}]({name}.html)" + (f": {plain}" if plain else "")


def _diagram(match: re.Match[str], up: str) -> str:
    name = name_of(match["code"])
    if not (DRAWN / f"{name}-light.svg").exists():
        log.warning("a diagram is not drawn: python scripts/diagrams.py")
    drawn = f"{up}images/diagrams/{name}"
    return "\n".join(
        f'<img class="diagram {scheme}" alt="A diagram" src="{drawn}-{scheme}.svg">'
        for scheme in ("light", "dark")
    )


def _both_schemes(match: re.Match[str]) -> str:
    return "\n".join(
        f'<img class="{scheme}" alt="{match["alt"]}" src="{match[scheme]}">'
        for scheme in ("light", "dark")
    )


def _outward(match: re.Match[str], here: Path, repository: str) -> str:
    """A link to a file outside docs/ leads to the repository."""
    target = (here.parent / match[2]).resolve()
    if target.is_relative_to(ROOT / "docs"):
        return match[0]
    if not target.exists():
        log.warning("%s: no such file: %s", here.name, match[2])
    kind = "tree" if target.is_dir() else "blob"
    return f"{match[1]}{repository}/{kind}/main/{target.relative_to(ROOT)}{match[3]}"
