"""The shell blocks of a page run in their order, beside one server, wherever they can."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from systems.servers.ports import free_port
from tests.docs import shell
from tests.docs.blocks import ROOT, Block, blocks

ROUTES = ("hook", "orders", "push", "reminders")
SETTINGS = """
store = "sqlite:///penstock.db"
[routes.refused]
sink = "python:refuse:refuse"
"""
ROUTE = """
[routes.{name}]
sink = "http://127.0.0.1:{receiver}/{name}"
"""
REFUSE = """
import penstock


def refuse(message: penstock.Message) -> None:
    raise penstock.Reject("410 Gone")
"""
MAKES_SETTINGS = {"docs/start/install.md"}
"""Pages that make penstock.toml themselves."""
BEFORE = {
    "docs/run/operate.md": "penstock schedule refused --id order-17 --payload 17\n"
    "until penstock get order-17 --json | grep -q '\"dead\"'; do sleep 0.1; done\n"
}
"""What a page finds there."""
ARRIVED = "until penstock get order-42 --json | grep -q '\"delivered\"'; do sleep 0.1; done\n"
AFTER = {"README.md": ARRIVED, "docs/start/quickstart.md": ARRIVED}
"""What must have come true in the end."""

PAGES = shell.pages()


def prepare(folder: Path, page: str, ports: shell.Ports) -> None:
    """Settings, a Python sink, and the examples with ports of their own."""
    if page not in MAKES_SETTINGS:
        routes = (ROUTE.format(name=name, receiver=ports.receiver) for name in ROUTES)
        (folder / "penstock.toml").write_text(SETTINGS + "".join(routes))
    (folder / "refuse.py").write_text(REFUSE)
    sale = folder / "examples" / "ticket-sale"
    shutil.copytree(ROOT / "examples" / "ticket-sale", sale)
    for file in (*sale.glob("*.py"), *sale.glob("*.toml")):
        file.write_text(ports.put_into(file.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=shell.name_of)
def test_the_commands_of_a_page_work_in_their_order(page: Path, tmp_path: Path) -> None:
    name, shown = shell.name_of(page), PAGES[page]
    ports = shell.Ports(*(free_port() for _ in range(5)))
    prepare(tmp_path, name, ports)
    code = shell.script(shown, ports, before=BEFORE.get(name, ""), after=AFTER.get(name, ""))
    shell.run(code, tmp_path, shell.environment(tmp_path, ports))


def test_what_is_not_run_is_listed_once_with_a_reason() -> None:
    shown = [block for block in blocks("sh") if not block.page.name.endswith("cli.md")]
    of_pages = {shell.name_of(block.page) for block in shown}
    assert set(shell.PAGES) <= of_pages
    code = "".join(block.code for block in shown)
    lines = [line for block in shown for line in shell.lines(block.code)]
    assert not [one for one in shell.LINES if not any(line.startswith(one) for line in lines)]
    assert not [longer for longer in shell.SHORTER if longer not in code]
    programs = {words[0].rpartition("/")[2] for words in shell.commands(code)}
    assert set(shell.PROGRAMS) <= programs
    reasons = [*shell.PROGRAMS.values(), *shell.PAGES.values(), *shell.LINES.values()]
    assert all(reasons)


def test_a_script_leaves_out_only_what_is_listed() -> None:
    code = "docker run x \\\n  --rm\ncurl -s http://127.0.0.1:8700/readyz && penstock list\n"
    block = Block(ROOT / "README.md", 1, "sh", code, needs_server=False)
    ports = shell.Ports(1, 2, 3, 4, 5)
    script = shell.script([block], ports)
    assert script.endswith("\npenstock serve\ncurl -s http://127.0.0.1:1/readyz && penstock list\n")
