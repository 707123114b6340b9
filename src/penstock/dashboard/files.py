"""What the page is made of, by the names its links use. It works without internet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

INDEX = "index.html"
UPLOT = ("uPlot.iife.js", "uPlot.min.css")
"""Charts: files of the package uplot-python, served as they are."""
MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(msgspec.Struct, frozen=True):
    """A file's bytes, with what a browser needs to know of them."""

    content: bytes
    media: str
    etag: str


def dashboard_file(name: str) -> PageFile | None:
    """`main.js`, `views/now.js`, `uPlot.iife.js`, … None: there is no such file."""
    return _all().get(name)


@cache
def _all() -> dict[str, PageFile]:
    return {name: _page_file(name, content) for name, content in _contents()}


def _contents() -> Iterator[tuple[str, bytes]]:
    yield from _below(files("penstock.dashboard").joinpath("page"))
    shipped = _uplot_folder()
    for name in UPLOT:
        yield name, (shipped / name).read_bytes()


def _below(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()


def _uplot_folder() -> Path:
    """Where uplot-python keeps uPlot. Importing the package would import numpy and IPython."""
    found = PathFinder.find_spec("uplot")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("uplot-python is not installed: the dashboard's charts need it")
    return Path(found.submodule_search_locations[0]) / "static"


def _page_file(name: str, content: bytes) -> PageFile:
    digest = hashlib.sha256(content).hexdigest()[:20]
    return PageFile(content, MEDIA[name.rpartition(".")[2]], f'"{digest}"')
