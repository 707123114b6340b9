"""The files of the page, by the names its links use. It works without internet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

INDEX = "index.html"
UPLOT = ("uPlot.iife.js", "uPlot.min.css")
"""Charts: uPlot as its author publishes it, in `uplot/` beside its licence."""
MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(msgspec.Struct, frozen=True):
    """A file's bytes, with the content type and the tag that a browser gets."""

    content: bytes
    media: str
    etag: str


def dashboard_file(name: str) -> PageFile | None:
    """A file such as `main.js`, `views/now.js`, `uPlot.iife.js`; None if there is no such file."""
    return _all().get(name)


@cache
def _all() -> dict[str, PageFile]:
    return {name: _page_file(name, content) for name, content in _contents()}


def _contents() -> Iterator[tuple[str, bytes]]:
    shipped = files("penstock.dashboard")
    yield from _below(shipped.joinpath("page"))
    for name in UPLOT:
        yield name, shipped.joinpath("uplot", name).read_bytes()


def _below(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()


def _page_file(name: str, content: bytes) -> PageFile:
    digest = hashlib.sha256(content).hexdigest()[:20]
    return PageFile(content, MEDIA[name.rpartition(".")[2]], f'"{digest}"')
