"""The whole ticket sale in one terminal: a server, the shop, a crowd. Ctrl-C ends it.

It uses free ports and a temporary folder, and ends by itself when the crowd has gone.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock.model.times import parse_duration

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(
    words: list[str], folder: Path, env: dict[str, str], log: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """The process, stopped at the end as Ctrl-C stops it; `log` takes what it prints."""
    out = (folder / log).open("w") if log else None
    command = [sys.executable, *words]
    process = subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
        if out is not None:
            out.close()


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def wait_for(url: str, process: subprocess.Popen[str], log: Path) -> None:
    for _ in range(600):
        try:
            read(url)
        except OSError:
            if process.poll() is not None:
                sys.exit(f"{log.read_text()}{url}: the process ended before it answered")
            time.sleep(0.1)
        else:
            return
    sys.exit(f"{url} does not answer")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--for", dest="span", default="", help="end after this, such as 60s")
    add("--users", type=int, default=300, help="how many come")
    add("--tickets", type=int, default=200, help="how many tickets there are")
    add("--inside", type=int, default=10, help="how many may shop at once")
    options = parser.parse_args()
    gate, shop = free_port(), free_port()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-sale-")))
        token = secrets.token_urlsafe(32)
        env = {
            **os.environ,
            "PENSTOCK_CONFIG": str(HERE / "penstock.toml"),
            "PENSTOCK_STORE": f"sqlite:///{folder / 'sale.db'}",
            "PENSTOCK_API__HTTP": f"127.0.0.1:{gate}",
            "PENSTOCK_API__GRPC": "off",
            "PENSTOCK_API__TOKENS": token,
            "PENSTOCK_LOG__LEVEL": "warning",
            "PENSTOCK_TOKEN": token,
        }
        penstock, address = f"http://127.0.0.1:{gate}", f"http://127.0.0.1:{shop}"
        server = stack.enter_context(
            running(["-m", "penstock", "serve"], folder, env, "server.log")
        )
        wait_for(f"{penstock}/readyz", server, folder / "server.log")
        words = ["--port", str(shop), "--penstock", penstock, "--tickets", str(options.tickets)]
        words = [str(HERE / "shop.py"), *words, "--inside", str(options.inside)]
        seller = stack.enter_context(running(words, folder, env, "shop.log"))
        wait_for(f"{address}/status", seller, folder / "shop.log")
        print(f"shop: {address}/\ndashboard: {penstock}/#/rooms, token {token}", flush=True)
        words = ["-m", "penstock", "sim", "crowd", "sale", "--url", penstock]
        words += ["--users", str(options.users), "--within", "10s", "--session", "1s"]
        crowd = stack.enter_context(running(words, folder, env))
        try:
            crowd.wait(parse_duration(options.span) / 1000 if options.span else None)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            crowd.send_signal(signal.SIGINT)
            crowd.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
