"""Drives one peer: its server, its workers and its enqueuer as processes of their own.

Every process is the leader of a session, so that what it starts ends with it; all are ended by
their own ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.peers import servers
from bench.peers.environments import ADAPTERS, Environment
from bench.peers.table import Peer
from bench.processes import cpu
from systems.servers.ports import free_port

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0


class Failed(RuntimeError):
    """A peer did not do what it was asked; the text says what it said last."""


class Process:
    """One program of a peer's environment and everything it starts."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if log.stem == "enqueue" else out,
                stderr=out,
                start_new_session=True,
                text=True,
            )

    @property
    def is_up(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Its exit status; None while it is up."""
        return self._process.poll()

    def memory(self) -> int:
        """Bytes in memory, of its children as well."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            family = (process, *process.children(recursive=True))
            return sum(one.memory_info().rss for one in family)
        raise Failed(f"it ended: {self.last_words()}")

    def cpu(self) -> float:
        """Seconds of CPU so far, of its children as well."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return cpu(psutil.Process(self._process.pid))
        raise Failed(f"it ended: {self.last_words()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, words: dict[str, object], seconds: float) -> dict[str, float]:
        """Give an order and read its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as exc:
            raise Failed(f"it ended: {self.last_words()}") from exc
        answer: dict[str, float] = json.loads(self.line(seconds))
        return answer

    def line(self, seconds: float) -> str:
        """The next line it prints; a process that does not is ended, and with it the wait."""
        assert self._process.stdout is not None
        late = _Alarm(self, seconds)
        with late:
            said = self._process.stdout.readline()
        if said:
            return said
        why = f"nothing within {seconds:.0f} s" if late.rang else "it ended"
        raise Failed(f"{why}: {self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-600:].strip() or "it said nothing"

    def kill(self) -> None:
        """As kill -9 does, children too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """For good. Not politely: its messages go with its server, and patience costs minutes."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class _Alarm:
    """Kills a process that takes too long to answer."""

    def __init__(self, process: Process, seconds: float) -> None:
        self.rang = False
        self._process = process
        self._timer = threading.Timer(seconds, self._ring)

    def _ring(self) -> None:
        self.rang = True
        self._process.kill()

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


class Running:
    """A peer on a fresh server."""

    def __init__(
        self, peer: Peer, place: Environment, server: servers.Server, folder: Path, lease: int
    ) -> None:
        self.server = server
        self.out = folder / "came"
        self._peer = peer
        self._place = place
        self._folder = folder
        self._lease = lease
        self._port = 0
        self._numbers = iter(range(1_000_000, 1 << 40, 1_000_000))
        self._url = server.url
        if peer.config:
            self._url = self._configure()
        self._enqueuer: Process | None = None
        self.workers: list[Process] = []

    def _configure(self) -> str:
        self._port = free_port()
        text = self._peer.config.replace("@PORT@", str(self._port))
        text = text.replace("@STORE@", self.server.url).replace("@LEASE@", str(self._lease or 30))
        (self._folder / "penstock.toml").write_text(text)
        behind_http = self._peer.enqueue[-1] == "http"
        return f"http://127.0.0.1:{self._port}" if behind_http else self.server.url

    def close(self) -> None:
        for process in (*self.workers, *([self._enqueuer] if self._enqueuer else [])):
            process.end()

    @property
    def enqueuer(self) -> Process:
        if self._enqueuer is None:
            self._enqueuer = self._start(self._peer.enqueue, "enqueue")
            self._enqueuer.line(START_SECONDS)
        return self._enqueuer

    @property
    def victim(self) -> Process:
        """The worker that is killed."""
        return self.workers[0] if self._peer.workers else self.enqueuer

    def start_workers(self) -> None:
        self.workers = [self._start(words, "worker") for words in self._peer.workers]
        self._wait_listening()

    def _wait_listening(self) -> None:
        """Of a peer behind HTTP, until it listens."""
        deadline = time.monotonic() + START_SECONDS
        while self._port:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            if time.monotonic() > deadline or not self.victim.is_up:
                raise Failed(f"it does not listen: {self.victim.last_words()}")
            time.sleep(0.05)

    def revive(self) -> None:
        """Start again what was killed."""
        if self._peer.workers:
            self.workers[0] = self._start(self._peer.workers[0], "worker")
        else:
            self._enqueuer = None
            assert self.enqueuer.is_up

    def enqueue(
        self, do: str, number: int, ahead: float, *, seconds: float = 180, **more: float
    ) -> tuple[int, int, float]:
        """The first id, the due time in ms, and the seconds it took."""
        enqueuer = self.enqueuer
        first = next(self._numbers)
        due = time.time_ns() // 1_000_000 + round(ahead * 1000)
        order = {"do": do, "first": first, "number": number, "due": due, **more}
        return first, due, enqueuer.ask(order, seconds)["seconds"]

    def memory(self) -> int:
        """Of all its workers."""
        return sum(one.memory() for one in self.workers or [self.enqueuer])

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU so far: of its workers, and of the server."""
        ours = {one.pid for one in (*self.workers, self.enqueuer)}
        rest = [one for one in psutil.Process().children() if one.pid not in ours]
        return sum(one.cpu() for one in self.workers), sum(map(cpu, rest))

    def _start(self, words: tuple[str, ...], name: str) -> Process:
        env = {
            **os.environ,
            "PATH": f"{self._place.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(self._paths()),
            "PYTHONUNBUFFERED": "1",
            "PEERS_URL": self._url,
            "PEERS_OUT": str(self.out),
            "PEERS_LEASE": str(self._lease),
            "PENSTOCK_API__GRPC": "off",
        }
        env.pop("VIRTUAL_ENV", None)
        command = [self._place.program(words[0]), *map(self._meant, words[1:])]
        return Process(command, self._folder, env, self._folder / f"{name}.log")

    def _meant(self, word: str) -> str:
        """With what the marks of the table stand for."""
        place = str(self._place.folder)
        marks = {"@ADAPTERS@": str(ADAPTERS), "@PLACE@": place, "@URL@": self._url}
        for mark, meant in marks.items():
            word = word.replace(mark, meant)
        return word

    def _paths(self) -> list[str]:
        """Ours needs the source as well; a peer must not see it."""
        return [str(ADAPTERS), *([str(ROOT / "src")] if self._peer.is_ours else [])]


@contextmanager
def running(peer: Peer, place: Environment, folder: Path, lease: int = 0) -> Iterator[Running]:
    folder.mkdir(parents=True)
    with servers.started(peer.server, folder) as server:
        run = Running(peer, place, server, folder, lease)
        try:
            yield run
        finally:
            run.close()
