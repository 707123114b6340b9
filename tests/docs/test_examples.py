"""What the documentation shows works as it is shown."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.settings import load
from systems.servers.ports import free_port
from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.servers.penstock import run_penstock

PYTHON = [block for block in blocks("python") if not block.needs_server]
PYTHON_WITH_SERVER = [block for block in blocks("python") if block.needs_server]
SETTINGS = blocks("toml")
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []
