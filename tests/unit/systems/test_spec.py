"""processes.toml: read strictly, filled in, and the same list that everybody starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from systems.spec import EXAMPLES, FILE, SpecError, parse_spec, read_spec

WHOLE = """
servers = ["redis"]
dashboard = "http://{api}"
[ports]
api = 8700
[values]
rate = "5"
[env]
PENSTOCK_STORE = "redis://{redis}/0"
SHARED = "all"
[[process]]
name = "init"
run = "penstock store init"
once = true
[[process]]
name = "worker"
run = "penstock worker --rate {rate} --name 'w {copy}'"
copies = 2
env = { SHARED = "{api}" }
config = "push/penstock.toml"
[[process]]
name = "source"
run = "python load.py"
config = "other.toml"
world = true
source = true
report = true
ready = "log: Sent"
"""
WORDS = {"redis": "127.0.0.1:1", "api": "127.0.0.1:2", "rate": "5"}
ONE = '[[process]]\nname = "one"\nrun = "penstock api"\n'


def test_every_process_becomes_a_command_with_its_texts_filled_in(tmp_path: Path) -> None:
    init, first, second, source = parse_spec(WHOLE).commands(tmp_path, WORDS)
    assert (init.name, init.argv[1:], init.folder) == (
        "init",
        ["-m", "penstock", "store", "init"],
        tmp_path,
    )
    assert [first.name, second.name] == ["worker-1", "worker-2"]
    assert first.argv[3:] == ["worker", "--rate", "5", "--name", "w 1"]
    assert first.folder == tmp_path / "push"
    assert first.env == {"PENSTOCK_STORE": "redis://127.0.0.1:1/0", "SHARED": "127.0.0.1:2"}
    assert source.argv == [sys.executable, "load.py"]
    assert source.env["PENSTOCK_CONFIG"] == "other.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "process"),
        ("servers = [", "Invalid|Unclosed|array"),
        (f'servers = ["mysql"]\n{ONE}', "mysql"),
        (f"{ONE}colour = 1\n", "colour"),
        (f"{ONE}copies = 0\n", "process 'one': copies"),
        (f'{ONE}ready = "soon"\n', "process 'one': ready"),
        (f"{ONE}once = true\nsource = true\n", "process 'one': a process that runs once"),
        (f"{ONE}{ONE}", "process 'one': the name is used twice"),
        (ONE.replace("penstock api", ""), "process 'one': run is empty"),
        (f'drain = "soon"\n{ONE}', "drain"),
        (f'servers = ["redis"]\n[ports]\nredis = 1\n{ONE}', "redis: named more than once"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text)


def test_a_name_that_nobody_knows_is_named_with_its_place(tmp_path: Path) -> None:
    spec = parse_spec(f'{ONE}env = {{ URL = "http://{{api}}" }}\n')
    with pytest.raises(SpecError, match=r"process 'one', env URL: \{api\} is not known"):
        spec.commands(tmp_path, {"redis": "x"})


def test_braces_that_name_nothing_are_left_alone(tmp_path: Path) -> None:
    spec = parse_spec(f"{ONE}env = {{ JSON = '{{\"a\": {{}}}}' }}\n")
    (command,) = spec.commands(tmp_path, {})
    assert command.env == {"JSON": '{"a": {}}'}


def test_a_folder_without_a_list_is_named() -> None:
    with pytest.raises(SpecError, match=r"examples/nothing/processes\.toml is not there"):
        read_spec("nothing")


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob(f"*/{FILE}")), ids=lambda path: path.parent.name
)
def test_the_lists_of_the_examples_can_be_run(path: Path) -> None:
    spec = read_spec(path.parent.name)
    assert [process for process in spec.process if process.source], "nothing brings the load"
    assert [process for process in spec.process if process.report], "nothing to judge by"
    for process in spec.process:
        assert (path.parent / process.config).exists()
