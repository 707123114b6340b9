"""RabbitMQ from Debian's package, apart from any other on the machine.

Its launcher is called directly: the wrapper on PATH wants to become another user. Node name,
cookie, data, logs and the port mapper (epmd) are all its own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from systems.servers.certificates import make_certificate
from systems.servers.ports import free_port
from systems.servers.process import ServerProcess

HERE = Path("/usr/lib/rabbitmq/bin")
COOKIE = ".erlang.cookie"


class RabbitServer(ServerProcess):
    def __init__(
        self, folder: Path, *, management: bool = True, beside: RabbitServer | None = None
    ) -> None:
        """`beside`: the node whose port mapper and cookie it shares, to form a cluster with it."""
        super().__init__(folder)
        self._beside = beside
        self.peers: list[RabbitServer] = []
        """All nodes of its cluster, set before the first start; empty: it stands alone."""
        self._port, self._dist, self.epmd_port = free_port(), free_port(), free_port()
        self.management_port = free_port()
        self.secure_address = f"127.0.0.1:{free_port()}"
        """The same over TLS."""
        self._plugins = "[rabbitmq_management]." if management else "[]."
        self._epmd: subprocess.Popen[bytes] | None = None
        if beside is not None:
            self.epmd_port = beside.epmd_port
        self.name = f"penstock-{self._port}@localhost"
        self.address = f"127.0.0.1:{self._port}"
        self.url = f"amqp://guest:guest@{self.address}"

    @property
    def authority(self) -> Path:
        """What to trust at secure_address."""
        return self.folder / "cert.pem"

    def command(self) -> list[str]:
        launcher = HERE / "rabbitmq-server"
        assert launcher.exists(), "no rabbitmq-server: run scripts/install-servers"
        return [str(launcher)]

    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL"))}
        beam = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"  # idle schedulers must not spin
        return inherited | {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "none.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"{beam} -kernel inet_dist_use_interface {{127,0,0,1}}"
            ),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def before_start(self) -> None:
        if not self.authority.exists():
            make_certificate(self.folder)
        (self.folder / "rabbitmq.conf").write_text(
            f"log.console.level = warning\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management_port}\n"
            f"listeners.ssl.1 = {self.secure_address}\n"
            f"ssl_options.cacertfile = {self.authority}\n"
            f"ssl_options.certfile = {self.authority}\n"
            f"ssl_options.keyfile = {self.folder / 'key.pem'}\n"
            f"ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n"
            # Alarms of memory and disk belong to the machine, not to what is tested.
            f"vm_memory_high_watermark.absolute = 2GB\ndisk_free_limit.absolute = 50MB\n"
            f"cluster_formation.randomized_startup_delay_range.min = 0\n"
            f"cluster_formation.randomized_startup_delay_range.max = 0\n"
            + "".join(
                f"cluster_formation.classic_config.nodes.{number} = {peer.name}\n"
                for number, peer in enumerate(self.peers, 1)
            )
        )
        (self.folder / "enabled_plugins").write_text(self._plugins)
        if self._beside is not None:
            shutil.copy(self._beside.folder / COOKIE, self.folder / COOKIE)
            return
        epmd = shutil.which("epmd")
        assert epmd, "no epmd: run scripts/install-servers"
        # In the foreground and ours: otherwise the node would leave a daemon behind.
        self._epmd = subprocess.Popen(
            [epmd, "-port", str(self.epmd_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def after_stop(self) -> None:
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None

    def answers(self) -> bool:
        """An AMQP 0-9-1 greeting is answered by Connection.Start."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=2) as line:
                line.settimeout(5)
                line.sendall(b"AMQP\x00\x00\x09\x01")
                return line.recv(1) == b"\x01"
        except OSError:
            return False

    def admin(self, *words: str) -> str:
        """rabbitmqadmin, Debian's own: somebody else's eyes."""
        tool = shutil.which("rabbitmqadmin") or "/usr/bin/rabbitmqadmin"
        where = ["-H", "127.0.0.1", "-P", str(self.management_port)]
        done = subprocess.run(
            ["/usr/bin/python3", tool, *where, *words], check=True, capture_output=True, text=True
        )
        return done.stdout

    def evaluate(self, erlang: str) -> str:
        """What the broker's node makes of an expression."""
        return self.control("eval", erlang)

    def control(self, *words: str) -> str:
        """rabbitmqctl on this node."""
        done = subprocess.run(
            [str(HERE / "rabbitmqctl"), "-n", self.name, *words],
            check=True,
            capture_output=True,
            text=True,
            env=self.environment(),
        )
        return done.stdout
