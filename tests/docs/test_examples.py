"""What the documentation shows works as it is shown."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.settings import load
from penstock.sim.receiver_process import run_receiver
from systems.servers.ports import free_port
from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.servers.penstock import run_penstock

PYTHON = [block for block in blocks("python") if not block.needs_server]
PYTHON_WITH_SERVER = [block for block in blocks("python") if block.needs_server]
SETTINGS = blocks("toml")
RUN = {ROOT / "README.md", ROOT / "docs" / "start" / "quickstart.md"}
SHELL = [
    block
    for block in blocks("sh")
    if (block.page in RUN or block.needs_server) and not block.not_run
]
CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
[routes.hook]
sink = "{url}"
"""
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#[^)]*)?\)")


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_example_runs(block: Block, tmp_path: Path) -> None:
    done = run(block.code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON_WITH_SERVER, ids=str)
async def test_a_python_example_runs_against_a_server(block: Block, tmp_path: Path) -> None:
    grpc = f"127.0.0.1:{free_port()}"
    async with run_penstock(tmp_path, CONFIG.format(url="log://"), grpc=grpc) as server:
        code = block.code.replace("http://127.0.0.1:8700", server.url)
        code = code.replace("127.0.0.1:8701", grpc)
        done = await asyncio.to_thread(run, code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", SETTINGS, ids=str)
def test_an_example_of_settings_is_valid(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "penstock.toml"
    config.write_text(block.code)
    assert load(config).all_routes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", sorted({block.page for block in SHELL}), ids=lambda page: page.name
)
async def test_the_commands_of_a_page_work_in_their_order(page: Path, tmp_path: Path) -> None:
    script = "set -eu\n" + "\n".join(
        line
        for block in SHELL
        if block.page == page
        for line in block.code.splitlines()
        if not line.startswith(("make ", ".venv/bin/penstock sim"))
    )
    async with (
        run_receiver(tmp_path / "received.ndjson") as receiver,
        run_penstock(tmp_path, CONFIG.format(url=receiver.url)) as server,
    ):
        script = script.replace("http://127.0.0.1:8700", server.url)
        script = script.replace(".venv/bin/penstock", "penstock")
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": _path(), "PENSTOCK_URL": server.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if page not in RUN:
            return
        for _ in range(200):  # what was released or is due in a few seconds arrives
            if any(one.id == "order-42" for one in receiver.received()):
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError(f"order-42 did not arrive:\n{done.stdout}")


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []
