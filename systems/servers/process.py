"""A real server that its starter owns: loopback, free ports, a temporary folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

START_PATIENCE = 300.0
"""Seconds a server may take to answer; a busy machine is slow, not broken."""
STOP_PATIENCE = 60.0


class ServerProcess(ABC):
    """One process of our own; stop, kill and restart keep its data and its ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def answers(self) -> bool:
        """Whether it does its work, asked in its own protocol; never raises for "not yet"."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def before_start(self) -> None:  # noqa: B027 - most have nothing to do
        """What must be there before the process."""

    def after_stop(self) -> None:  # noqa: B027 - most have nothing to do
        """What must not be left after it."""

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return when it answers."""
        if self.running:
            return
        self.before_start()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that a launcher's children end with it
            )
        deadline = time.monotonic() + START_PATIENCE
        while not self.answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                why = "ended" if ended else "does not answer"
                raise RuntimeError(f"{type(self).__name__} {why}:\n{self.last_words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask it to end, as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """It holds its connections and says nothing, as behind a broken network."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            self._signal(signal.SIGCONT)  # a frozen one cannot end
            self._signal(how)
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                process.wait(STOP_PATIENCE)
        self._process = None
        self.after_stop()

    def _signal(self, how: signal.Signals) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, how)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
