"""Named statements: each is described, complete, used, and takes the values it is given."""

from __future__ import annotations

import re
import sqlite3
from importlib.resources import files
from pathlib import Path

import pytest

from penstock.stores import sql, sqlite
from penstock.stores.sql.statements import CONCERNS, Dialect, load, load_schema, read_blocks
from penstock.stores.sqlite.session import DIALECT, STATEMENTS

FILES = [*((sql.__name__, f"{concern}.sql") for concern in CONCERNS), (sqlite.__name__, "own.sql")]
CODE = "".join(
    path.read_text("utf-8")
    for package in (sql, sqlite)
    for path in Path(package.__path__[0]).glob("*.py")
)
NAMED = set(re.findall(r'"([a-z_0-9]+)"', CODE)) | {f"turns_{n}" for n in range(1, 11)}


def fragments(blocks: dict[str, str]) -> set[str]:
    """Blocks that other blocks name."""
    text = " ".join(blocks.values())
    return set(re.findall(r"\{(\w+)[:}]", text)) | set(re.findall(r"\{priorities:(\w+)\}", text))


@pytest.mark.parametrize(("package", "name"), FILES)
def test_every_block_has_a_description_of_one_line(package: str, name: str) -> None:
    text = files(package).joinpath(name).read_text("utf-8")
    heads = re.findall(r"^-- ([a-z_0-9]+): (.+)$", text, re.MULTILINE)
    assert len(heads) == len(read_blocks(package, name)), "no name twice"
    for _, description in heads:
        assert description[0].isupper()
        assert description.rstrip().endswith((".", ":"))


def test_no_two_files_have_a_block_of_one_name_but_where_a_dialect_replaces_it() -> None:
    names = [name for package, file in FILES[:-1] for name in read_blocks(package, file)]
    assert len(names) == len(set(names))


def test_every_statement_is_used_and_every_fragment_is_named() -> None:
    blocks: dict[str, str] = {}
    for package, file in FILES:
        blocks |= read_blocks(package, file)
    unused = {name for name in blocks if name not in NAMED and name not in fragments(blocks)}
    assert not unused


def test_sqlite_can_prepare_every_statement() -> None:
    connection = sqlite3.connect(":memory:")
    for statement in load_schema(DIALECT):
        connection.execute(statement)
    for number in range(1, 11):
        connection.execute(STATEMENTS[f"turns_{number}"])
    blocks: dict[str, str] = {}
    for package, file in FILES:
        blocks |= read_blocks(package, file)
    whole = STATEMENTS.keys() - fragments(blocks)
    for name in sorted(whole):
        text = STATEMENTS[name].replace("{where}", "")
        if text.startswith(("AND ", "CREATE ")):
            continue
        named = dict.fromkeys(re.findall(r":([a-z_]+)", text), 1)
        values = named or (1,) * text.count("?")
        connection.execute(f"EXPLAIN {text}", values)
    connection.close()


def test_a_dialect_writes_words_macros_and_values_and_replaces_blocks() -> None:
    postgres = Dialect(
        words={
            **DIALECT.words,
            "lock": "FOR UPDATE",
            "skip_locked": "FOR UPDATE SKIP LOCKED",
            "join": "JOIN",
        },
        macros={
            **DIALECT.macros,
            "each_int": "unnest(:{0}::bigint[])".format,
            "index": lambda _: "",
        },
        placeholders=lambda text: re.sub(r"(?<!:):(\w+)", r"%(\1)s", text).replace("?", "%s"),
    )
    written = load(postgres)
    assert written["ended_lease"].endswith("WHERE until <= %s ORDER BY until, token LIMIT 1"
                                           " FOR UPDATE SKIP LOCKED")  # fmt: skip
    assert "unnest(%(seqs)s::bigint[])" in written["deliver"]
    assert "INDEXED BY" not in " ".join(written.values())
