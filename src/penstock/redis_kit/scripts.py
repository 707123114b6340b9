"""Lua scripts: each a file of the package, beside the Python that calls it.

A script names the files that stand before it, from the package's root:
`-- @include stores/redis/messages/record.lua`. Those may name others; each comes once.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from importlib.resources import files

_INCLUDE = re.compile(r"^-- @include (\S+)$", re.MULTILINE)


class Script:
    """A Lua file, read when it is first called; called by its hash."""

    def __init__(self, path: str) -> None:
        """`path` from the package's root: `stores/redis/messages/claim.lua`."""
        self.path = path
        self.name = path.rpartition("/")[2].removesuffix(".lua")

    @cached_property
    def source(self) -> bytes:
        """The whole text that the server runs."""
        parts: dict[str, str] = {}
        _read(self.path, parts)
        return "\n".join(parts.values()).encode()

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.source, usedforsecurity=False).hexdigest()


def _read(path: str, parts: dict[str, str]) -> None:
    """Add the file to `parts`, after those it includes."""
    text = files("penstock").joinpath(*path.split("/")).read_text(encoding="utf-8")
    for included in _INCLUDE.findall(text):
        if included not in parts:
            _read(included, parts)
    parts[path] = text
