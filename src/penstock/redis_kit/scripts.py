"""Lua scripts: each a file of the package, beside the Python that calls it.

A script includes the files that precede it, by their path from the package's root: `-- @include
stores/redis/messages/record.lua`. Includes nest; each file comes once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files

_INCLUDE = re.compile(r"^-- @include (\S+)$", re.MULTILINE)


class Script:
    """A Lua file, read on its first call; called by its hash."""

    def __init__(self, path: str) -> None:
        """`path` is relative to the package's root: `stores/redis/messages/claim.lua`."""
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


_CHAIN = b"""
local sizes, keys, arguments, replies = cmsgpack.unpack(ARGV[1]), 0, 1, {}
for s = 1, #steps do
  local own_keys, own_arguments = {}, {}
  for i = 1, sizes[s][1] do own_keys[i] = KEYS[keys + i] end
  for i = 1, sizes[s][2] do own_arguments[i] = ARGV[arguments + i] end
  keys, arguments = keys + #own_keys, arguments + #own_arguments
  local answers = steps[s](own_keys, own_arguments)
  replies[s] = answers
  for g = 1, #answers do
    if s < #steps and answers[g] ~= 0 then return replies end
  end
end
return replies
"""


class Chain(Script):
    """Scripts of one server run as one, in their order, as long as every group's answer is 0.

    KEYS and ARGV are those of the scripts one after the other; ARGV[1] (msgpack) says how many of
    each are whose: { { keys, arguments } … }. The answer: those of the scripts that were run.
    """

    def __init__(self, steps: Sequence[Script]) -> None:
        super().__init__(" then ".join(step.path for step in steps))
        self._steps = steps

    @cached_property
    def source(self) -> bytes:
        wrapped = (b"function(KEYS, ARGV)\n%b\nend" % step.source for step in self._steps)
        return b"local steps = {\n%b\n}\n%b" % (b",\n".join(wrapped), _CHAIN)


def _read(path: str, parts: dict[str, str]) -> None:
    """Add the file to `parts`, after those it includes."""
    text = files("penstock").joinpath(*path.split("/")).read_text(encoding="utf-8")
    for included in _INCLUDE.findall(text):
        if included not in parts:
            _read(included, parts)
    parts[path] = text
