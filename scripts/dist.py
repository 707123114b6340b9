"""Builds the distribution and tries it: sdist, wheel, checks, SBOM, the quickstart from the wheel.

What it makes is in dist/. The wheel is installed into clean environments outside the repository:
alone, where the library must work, and with the extra `server`, where the quickstart page is run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
LIBRARY = """
import asyncio, penstock

async def main():
    sent = asyncio.Event()
    async def handle(message):
        sent.set()
    opened = penstock.open("sqlite:///library.db", routes={"default": handle}, worker=True)
    async with opened as engine:
        await engine.schedule({"hello": "later"}, delay=0.1)
        await sent.wait()

asyncio.run(main())
print("the library schedules and releases:", penstock.__file__)
"""


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run("build", "--outdir", DIST, ROOT)
    sdist, wheel = next(DIST.glob("*.tar.gz")), next(DIST.glob("*.whl"))
    run("twine", "check", "--strict", sdist, wheel)
    run("check_wheel_contents", "--config", ROOT / "pyproject.toml", wheel)
    made_of(DIST / f"{wheel.name.split('-py3')[0]}.cdx.json")
    with tempfile.TemporaryDirectory(prefix="penstock-dist-") as folder:
        outside = Path(folder)
        library = installed(outside / "library", f"{wheel}")
        subprocess.run([library, "-I", "-c", LIBRARY], cwd=outside, check=True)
        server = installed(outside / "server", f"{wheel}[server]")
        subprocess.run([sys.executable, ROOT / "scripts" / "quickstart.py", server], check=True)
    for made in sorted(DIST.iterdir()):
        print(f"{made.stat().st_size:>10,} bytes  dist/{made.name}")


def made_of(bom: Path) -> None:
    """The SBOM: what an install with every extra has, at the versions and hashes of the image."""
    words = ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-file", bom]
    run("cyclonedx_py", "requirements", *words, ROOT / "requirements" / "image.txt")


def run(module: str, *words: object) -> None:
    """A tool of this environment."""
    subprocess.run([sys.executable, "-m", module, *map(str, words)], check=True)


def installed(folder: Path, what: str) -> Path:
    """A clean environment with it, at the versions of constraints.txt; its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    words = ["-q", "install", "-c", str(ROOT / "constraints.txt"), what]
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *words], check=True)
    return python


if __name__ == "__main__":
    main()
