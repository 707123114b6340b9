"""Makes docs/images/dashboard.png and dashboard-dark.png: the dashboard under `make demo` traffic.

Run it when the page has changed; `--seconds` is how long the demo runs before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import httpx
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SIZE = (1440, 980)
Theme = Literal["light", "dark"]


@contextmanager
def demo() -> Iterator[str]:
    """The demo on a free port; its address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "PENSTOCK_API__HTTP": address, "PENSTOCK_API__GRPC": "off"}
    command = [sys.executable, str(ROOT / "scripts" / "demo.py")]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        url = f"http://{address}"
        for _ in range(300):
            try:
                httpx.get(f"{url}/healthz").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def shoot(browser: Browser, url: str, view: str, theme: Theme, file: Path) -> None:
    size = {"width": SIZE[0], "height": SIZE[1]}
    page = browser.new_page(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{url}/#/{view}")
    page.locator("#link[data-state=live]").wait_for()
    page.wait_for_timeout(2500)
    page.screenshot(path=file)
    page.close()
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=170)
    wanted = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with demo() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        watching = browser.new_page()  # while somebody looks, the history has every second
        watching.goto(url)
        print(f"the demo runs for {wanted.seconds:.0f} s first")
        watching.wait_for_timeout(wanted.seconds * 1000)
        for theme in get_args(Theme):
            end = "" if theme == "light" else f"-{theme}"
            shoot(browser, url, "now", theme, IMAGES / f"dashboard{end}.png")
            shoot(browser, url, "forecast", theme, IMAGES / f"forecast{end}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
