"""Penstock's own commands as processes, with what they say and what they cost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PATIENCE = 120.0


class Running:
    """One `penstock …`."""

    def __init__(self, folder: Path, name: str, words: tuple[str, ...]) -> None:
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                cwd=folder,
                env={**os.environ, "PENSTOCK_API__GRPC": "off"},  # not what is measured
                stdout=out,
                stderr=err,
            )
        self.usage = psutil.Process(self._process.pid)

    def wait_for(self, text: str) -> None:
        """Until it has printed that."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.out.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it did not say {text!r}: {self.err.read_text()[-1000:]}")
            time.sleep(0.02)

    def ended(self) -> str:
        """What it printed, once it ended by itself."""
        if self._process.wait(PATIENCE + 600):
            raise RuntimeError(self.err.read_text()[-1000:])
        return self.out.read_text()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu(self.usage)


@contextmanager
def penstock(folder: Path, name: str, *words: str) -> Iterator[Running]:
    running = Running(folder, name, words)
    try:
        yield running
    finally:
        running.stop()


def cpu(process: psutil.Process) -> float:
    """Seconds of CPU of a process, its children included."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)
