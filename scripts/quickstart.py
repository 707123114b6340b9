"""Runs docs/start/quickstart.md with an installed Penstock: quickstart.py PYTHON.

The page's settings, commands and programs are taken from the page; only ports are replaced.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "start" / "quickstart.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = ("make ", "penstock sim ")
"""Lines of the page that start what is running here already."""
SECONDS = 60


def main(python: Path) -> None:
    page = PAGE.read_text()
    api, hook = free_port(), free_port()
    page = page.replace("127.0.0.1:8700", f"127.0.0.1:{api}").replace(":9000", f":{hook}")
    page = page.replace(".venv/bin/penstock", "penstock")
    blocks = [(kind, code) for kind, code in _BLOCK.findall(page)]
    settings = "".join(code for kind, code in blocks if kind == "toml")
    shell = [line for kind, code in blocks if kind == "sh" for line in code.splitlines()]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-start-")))
        (folder / "penstock.toml").write_text(
            f'{settings}\n[api]\nhttp = "127.0.0.1:{api}"\ngrpc = "off"\n'
        )
        stack.enter_context(running(python, folder, "serve"))
        stack.enter_context(running(python, folder, "sim", "provider", "--port", str(hook)))
        until_healthy(f"http://127.0.0.1:{api}/healthz")
        script = "\n".join(["set -eu", *(line for line in shell if not line.startswith(NOT_RUN))])
        run(python, folder, ["bash", "-c", script])
        until_delivered(python, folder, "order-42")
        for kind, code in blocks:
            if kind == "python":
                run(python, folder, [str(python), "-I", "-c", code])
    print(f"{PAGE.name}: every step ran")


@contextmanager
def running(python: Path, folder: Path, *words: str) -> Iterator[None]:
    process = subprocess.Popen(
        [python.with_name("penstock"), *words],
        cwd=folder,
        env=environment(python),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def run(python: Path, folder: Path, command: list[str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(python),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[-1]}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(python: Path) -> dict[str, str]:
    """Without what could lead to another Penstock."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}


def until_healthy(url: str) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    sys.exit(f"{url} does not answer")


def until_delivered(python: Path, folder: Path, name: str) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if '"delivered"' in run(python, folder, ["penstock", "get", name, "--json"]):
            return
        time.sleep(0.2)
    sys.exit(f"{name} was not delivered")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
