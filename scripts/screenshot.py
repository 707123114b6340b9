"""Makes docs/images/dashboard.png and dashboard-dark.png: the dashboard under `make demo` traffic.

Run it on a quiet machine when the page has changed; `--seconds` is how long the demo runs before.
The page stands open all the time, so that opening it does not show in the figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import httpx
from playwright.sync_api import Page, ViewportSize, sync_playwright

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


def shoot(page: Page, view: str, theme: Theme, file: Path) -> None:
    """Turn the page that has been open to a view and a theme: a new one would take the core."""
    page.emulate_media(color_scheme=theme)
    page.evaluate("view => { location.hash = `#/${view}`; }", view)
    page.wait_for_timeout(2500)
    page.screenshot(path=file)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


def lateness(url: str) -> float:
    """The median of p99 in the last two minutes, in milliseconds."""
    history = httpx.get(f"{url}/v1/history").raise_for_status().json()
    late = history["points"]["late_p99"][-120:]
    return statistics.median(float(one) for one in late if one is not None)


def is_busy() -> bool:
    """Something else takes the cores: the lateness shown would be its doing."""
    return os.getloadavg()[0] > 0.25 * (os.cpu_count() or 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--busy", action="store_true", help="take them on a busy machine, too")
    parser.add_argument("--p99", type=float, default=25, help="write nothing if it is above, ms")
    wanted = parser.parse_args()
    if is_busy() and not wanted.busy:
        print("the machine is busy: wait until it is quiet, or say --busy", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with demo() as url:
            size = ViewportSize(width=SIZE[0], height=SIZE[1])
            page = browser.new_page(viewport=size)
            page.goto(url)  # while somebody looks, the history has every second
            page.locator("#link[data-state=live]").wait_for()
            print(f"the demo runs for {wanted.seconds:.0f} s first")
            page.wait_for_timeout(wanted.seconds * 1000)
            late = lateness(url)
            print(f"p99 was {late:.0f} ms in the last two minutes")
            if late > wanted.p99 and not wanted.busy:
                return 1
            for theme in get_args(Theme):
                end = "" if theme == "light" else f"-{theme}"
                shoot(page, "now", theme, IMAGES / f"dashboard{end}.png")
                shoot(page, "forecast", theme, IMAGES / f"forecast{end}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
