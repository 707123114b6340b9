"""Real Redis servers: one, or a cluster, on free ports of 127.0.0.1 in temp folders."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from redis import Redis
from redis import exceptions as vendor
from redis.backoff import NoBackoff
from redis.retry import Retry

from systems.servers.certificates import Certificate
from systems.servers.ports import free_port

START_SECONDS = 300.0
PATIENCE = 300.0
"""Seconds for what a busy machine's cluster does in one."""
BUS = 10_000
"""A cluster's nodes talk to each other on their port and this."""
OUTGOING = 32_768
"""From here on the system gives ports to outgoing connections, which come and go."""


def free_cluster_port() -> int:
    """A free port whose bus port is free as well, and stays so."""
    while True:
        port = free_port()
        if port + BUS >= OUTGOING:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + BUS))
            except OSError:
                continue
        return port


def tls_options(port: int, certificate: Certificate) -> list[str]:
    """For a server that speaks TLS too, on a port of its own."""
    cert, key = str(certificate.cert), str(certificate.key)
    files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no"]
    return ["--tls-port", str(port), *files]


def patient(url: str) -> str:
    """The address with long time-outs: a busy machine is slow, not broken."""
    return f"{url}{'&' if '?' in url else '?'}timeout=60s&connect_timeout=60s"


class RedisServer:
    """One redis-server of our own; stopped by its process, its folder removed."""

    def __init__(
        self,
        *options: str,
        aof: bool = False,
        port: int | None = None,
        folder: Path | None = None,
        started: bool = True,
    ) -> None:
        self.port = free_port() if port is None else port
        self.folder = folder or Path(tempfile.mkdtemp(prefix="penstock-redis-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket = self.folder / "redis.sock"
        self._options = options
        self._aof = aof
        self._process: subprocess.Popen[bytes] | None = None
        if started:
            self.start()

    def binary(self) -> str:
        return "redis-server"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> Redis:
        """A plain client, which tries everything once; whoever asks closes it."""
        return Redis(port=self.port, socket_timeout=5, retry=Retry(NoBackoff(), 0))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def last_words(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        command = [self.binary(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.folder), "--unixsocket", str(self.socket)]
        command += ["--appendonly", "yes" if self._aof else "no", "--save", "", "--daemonize", "no"]
        command += self._options
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is not meant for it
            )
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def wait_ready(self) -> None:
        """Asked through its own socket: on the port another server could answer in its place."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            path = str(self.socket)
            with Redis(unix_socket_path=path, retry=Retry(NoBackoff(), 0)) as client:
                try:
                    client.ping()
                except vendor.AuthenticationError:
                    return
                except vendor.ConnectionError:
                    time.sleep(0.02)
                else:
                    return
        raise RuntimeError(f"{self.binary()} did not start: {(self.folder / 'log').read_text()}")

    def cli(self, *command: str) -> str:
        """The same thing a person types: redis-cli, its answer without the line's end."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *command],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.rstrip("\n")

    def flush(self) -> None:
        """Without a client: to make one takes longer than many of the tests that begin so."""
        answer = self.flushed()
        if answer != "+OK":
            raise RuntimeError(f"{self.binary()} was not emptied: {answer}")

    def flushed(self) -> str:
        """Empty it; its answer."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(str(self.socket))
            line.sendall(b"FLUSHALL\r\n")
            with line.makefile() as answers:
                return answers.readline().rstrip()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """As an orderly shutdown does."""
        self._signal(signal.SIGCONT)
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=START_SECONDS)
            self._process = None


class RedisCluster:
    """Three primaries with a replica each, unless told otherwise."""

    def __init__(
        self, *, primaries: int = 3, replicas: int = 1, aof: bool = False, fails_over: bool = True
    ) -> None:
        """`fails_over` after a second; otherwise a node that is late is still a node."""
        self.number = primaries
        self._replicas = replicas
        patience = "1000" if fails_over else "60000"
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", patience]
        options += ["--repl-diskless-sync-delay", "0"]  # replicas are there at once
        self.nodes: list[RedisServer] = []
        try:
            for _ in range(primaries * (1 + replicas)):
                server = RedisServer(*options, port=free_cluster_port(), aof=aof)
                self.nodes.append(server)
            self._join()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def _join(self) -> None:
        addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
        command = ["redis-cli", "--cluster", "create", *addresses]
        command += ["--cluster-replicas", str(self._replicas), "--cluster-yes"]
        if len(self.nodes) == 1:  # redis-cli makes none of fewer than three
            command = ["redis-cli", "-p", str(self.nodes[0].port)]
            command += ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the cluster could not be made: {done.stdout}{done.stderr}")
        deadline = time.monotonic() + START_SECONDS
        while not all(self._is_whole(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster did not come up")
            time.sleep(0.05)

    def _is_whole(self, node: RedisServer) -> bool:
        with node.client as client:
            info = client.execute_command("CLUSTER INFO")
            if info["cluster_state"] != "ok" or int(info["cluster_known_nodes"]) != len(self.nodes):
                return False
            link = client.info("replication")
            return bool(link["role"] == "master" or link["master_link_status"] == "up")

    def primaries(self) -> list[RedisServer]:
        """Of the nodes that are up."""
        return [node for node in self.nodes if node.is_up and self._role(node) == "master"]

    def wait_primaries(self) -> None:
        """Until there are as many as there should be: a replica took over from one that died."""
        deadline = time.monotonic() + START_SECONDS
        while len(self.primaries()) < self.number:
            if time.monotonic() > deadline:
                raise RuntimeError("no replica took over")
            time.sleep(0.05)

    def wait_agreed(self) -> None:
        """Until every node tells the same of which node has which slots."""
        deadline = time.monotonic() + PATIENCE
        while len({self._view(node) for node in self.nodes if node.is_up}) > 1:
            if time.monotonic() > deadline:
                raise RuntimeError("the nodes do not agree on who has which slots")
            time.sleep(0.05)

    def _view(self, node: RedisServer) -> tuple[str, ...]:
        """Each primary with its slots, as this node sees them; slots that move are marked."""
        lines = (line.split() for line in node.cli("CLUSTER", "NODES").splitlines())
        return tuple(sorted(f"{line[0]} {' '.join(line[8:])}" for line in lines if len(line) > 8))

    def _role(self, node: RedisServer) -> str:
        with node.client as client:
            return str(client.info("replication")["role"])

    def flush(self) -> None:
        """Empty the primaries; their replicas refuse, and follow."""
        for node in self.nodes:
            answer = node.flushed() if node.is_up else "+OK"
            if answer != "+OK" and not answer.startswith("-READONLY"):
                raise RuntimeError(f"a node was not emptied: {answer}")

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
