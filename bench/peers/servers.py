"""The servers peers stand on, each fresh, on a free port, with what its pending messages take."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.peers import postgres
from bench.peers.postgres import Postgres
from systems.servers.ports import free_port
from systems.servers.process import ServerProcess
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer


@dataclass(frozen=True)
class Server:
    """Where it is, and how many bytes it uses now."""

    url: str
    used: Callable[[], int]


@contextmanager
def started(kind: str, folder: Path) -> Iterator[Server]:
    """A server of that kind, with nothing in it; stopped in the end."""
    with _KINDS[kind](folder) as server:
        yield server


def absent(kind: str) -> str | None:
    """What is missing of a server of that kind on this machine; None: it is at hand."""
    if kind == "postgres":
        return None if postgres.programs() else "PostgreSQL (initdb, postgres)"
    program = {"rabbitmq": "rabbitmq-server", "beanstalkd": "beanstalkd"}.get(kind)
    return program if program is not None and shutil.which(program) is None else None


def versions() -> dict[str, str]:
    """What is installed of them."""
    asked = {"redis": ["redis-server", "--version"], "beanstalkd": ["beanstalkd", "-v"]}
    if (folder := postgres.programs()) is not None:
        asked["postgres"] = [str(folder / "postgres"), "--version"]
    found = {name: _said(command) for name, command in asked.items()}
    libraries = Path("/usr/lib/rabbitmq/lib")
    rabbit = [path.name.removeprefix("rabbitmq_server-") for path in libraries.glob("rabbitmq_s*")]
    return found | {"rabbitmq": ", ".join(rabbit)}


def _said(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    words = (done.stdout or done.stderr).split()
    return next((w.removeprefix("v=") for w in words if any(c.isdigit() for c in w)), "")


@contextmanager
def _redis(_folder: Path, *, aof: bool = False) -> Iterator[Server]:
    with RedisServer(aof=aof) as server, server.client as client:
        yield Server(server.url, lambda: int(client.info("memory")["used_memory"]))


@contextmanager
def _redis_aof(folder: Path) -> Iterator[Server]:
    with _redis(folder, aof=True) as server:
        yield server


@contextmanager
def _sqlite(folder: Path) -> Iterator[Server]:
    """No server: a file, whose size is what pending messages take."""
    path = folder / "penstock.db"

    def used() -> int:
        return sum(one.stat().st_size for one in folder.glob("penstock.db*"))

    yield Server(f"sqlite:///{path}", used)


class Beanstalkd(ServerProcess):
    """Debian's, without a binlog: everything is in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()

    def command(self) -> list[str]:
        assert shutil.which("beanstalkd"), "no beanstalkd: apt-get install beanstalkd"
        return ["beanstalkd", "-l", "127.0.0.1", "-p", str(self.port)]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2):
                return True
        except OSError:
            return False


@contextmanager
def _beanstalkd(folder: Path) -> Iterator[Server]:
    server = Beanstalkd(folder / "beanstalkd")
    server.start()
    try:
        yield Server(f"127.0.0.1:{server.port}", lambda: _resident("beanstalkd"))
    finally:
        server.stop()


@contextmanager
def _rabbitmq(folder: Path) -> Iterator[Server]:
    server = RabbitServer(folder / "rabbitmq", management=False)
    server.start()
    try:
        yield Server(server.url, lambda: _resident("beam.smp"))
    finally:
        server.kill()


@contextmanager
def _postgres(_folder: Path) -> Iterator[Server]:
    server = Postgres()
    server.start()
    try:
        yield Server(server.url, server.used)
    finally:
        server.stop()


def _resident(name: str) -> int:
    """Bytes in memory of the processes of that name that were started here."""
    here = psutil.Process(os.getpid()).children(recursive=True)
    return sum(one.memory_info().rss for one in here if one.name() == name)


_KINDS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "redis": _redis,
    "redis-aof": _redis_aof,
    "sqlite": _sqlite,
    "beanstalkd": _beanstalkd,
    "rabbitmq": _rabbitmq,
    "postgres": _postgres,
}
