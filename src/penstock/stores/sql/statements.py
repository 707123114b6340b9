"""Named statements: `.sql` files, one per concern, read once and written out for a dialect.

    -- name: what it does, in one line
    SELECT … WHERE id IN ({each:ids}) …

A block is one statement, or a fragment that others name in braces: `{columns}`, or `{of_key:x}`
with a text for its `{0}`. Values are `?` or `:name`. Where databases differ a statement names a
word or a macro of the dialect: `{lock}`, `{index:scheduled}`. A dialect may also bring a file of
its own, whose blocks replace the shared ones of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from penstock.stores.sql.messages import WORDS

PACKAGE = "penstock.stores.sql"
CONCERNS = ("messages", "turns", "policies", "search", "rooms", "recurring")
"""The shared files, without their ending."""
PRIORITIES = range(9, -1, -1)

_HEAD = re.compile(r"^-- ([a-z_0-9]+): (.+)$", re.MULTILINE)
_BRACES = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words and macros in which one database differs from the others."""

    words: Mapping[str, str]
    """`{name}` → its text."""
    macros: Mapping[str, Callable[[str], str]]
    """`{name:argument}` → its text."""
    own: tuple[str, str] | None = None
    """(package, file) of blocks that replace shared ones."""
    placeholders: Callable[[str], str] = str
    """Converts `?` and `:name` to the driver's placeholders."""


def read_blocks(package: str, name: str) -> dict[str, str]:
    """The blocks of a file, by name."""
    text = files(package).joinpath(name).read_text("utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {head[1]: _plain(text[head.end() : end]) for head, end in zip(heads, ends, strict=True)}


def load(dialect: Dialect, concerns: Iterable[str] = CONCERNS) -> dict[str, str]:
    """Every statement by name, as the dialect's database takes it."""
    words = {**WORDS, **dialect.words}
    blocks = dict(words)
    for concern in concerns:
        blocks |= read_blocks(PACKAGE, f"{concern}.sql")
    if dialect.own is not None:
        blocks |= read_blocks(*dialect.own)
    return {
        name: dialect.placeholders(_expand(text, blocks, dialect))
        for name, text in blocks.items()
        if name not in words
    }


def _expand(text: str, blocks: Mapping[str, str], dialect: Dialect) -> str:
    def replaced(match: re.Match[str]) -> str:
        name, argument = match[1], match[2]
        if argument is None:  # names that are known only on use stay as they are
            return _expand(blocks[name], blocks, dialect) if name in blocks else match[0]
        if name in blocks:
            return _expand(blocks[name].replace("{0}", argument), blocks, dialect)
        if name == "priorities":  # the block once for each, the highest first
            block = _expand(blocks[argument], blocks, dialect)
            parts = [block.replace("{priority}", str(number)) for number in PRIORITIES]
            return " UNION ALL ".join(f"SELECT * FROM ({part}) AS p" for part in parts)  # noqa: S608 - files
        return dialect.macros[name](argument)

    return _BRACES.sub(replaced, text)


def load_schema(dialect: Dialect) -> list[str]:
    """The statements that make the tables, one by one."""
    text = _plain(files(PACKAGE).joinpath("schema.sql").read_text("utf-8"))
    return [
        _expand(part.strip(), dialect.words, dialect) for part in text.split(";") if part.strip()
    ]


def _plain(text: str) -> str:
    """The statement without comments and line breaks."""
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return " ".join(line for line in lines if line)
