"""Apache Kafka (KRaft, one node) from the jars of scripts/install-servers.

Where Maven Central could not be reached, librdkafka's own mock cluster stands in: a real TCP
broker protocol in this process, without topics to create and without an end to come back from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import abstractmethod
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from systems.servers.certificates import make_certificate
from systems.servers.ports import free_port
from systems.servers.process import ServerProcess

HEAP = "384m"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
USER, PASSWORD = "ali", "opensesame"


def cache_folder() -> Path:
    given = os.environ.get("PENSTOCK_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given) if given else Path(base) / "penstock"


class Kafka(Protocol):
    @property
    def address(self) -> str: ...

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None: ...


class _KafkaProcess(ServerProcess):
    """Any process of Kafka's, with its settings in a file of its folder."""

    def __init__(self, folder: Path, jars: Path) -> None:
        super().__init__(folder)
        self.jars = jars
        self.address = f"127.0.0.1:{free_port()}"

    @abstractmethod
    def settings(self) -> dict[str, str]: ...

    def command(self) -> list[str]:
        return [*self._java(HEAP), "kafka.Kafka", str(self._properties)]

    def before_start(self) -> None:
        if not self._properties.exists():
            lines = "".join(f"{key}={value}\n" for key, value in self.settings().items())
            self._properties.write_text(lines)
            self.format()

    def format(self, *options: str) -> None:
        """Make its folder for data."""
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._properties.name]
        subprocess.run(
            [*self._java("128m"), *tool, *options], cwd=self.folder, check=True, capture_output=True
        )

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, heap: str) -> list[str]:
        java = shutil.which("java")
        assert java, "no java: run scripts/install-servers"
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        logs = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [java, f"-Xmx{heap}", *quick, logs, "-cp", f"{self.jars}/*"]


class KafkaServer(_KafkaProcess):
    """A whole cluster of one."""

    def __init__(self, folder: Path, jars: Path, **config: str) -> None:
        super().__init__(folder, jars)
        self.controller = f"127.0.0.1:{free_port()}"
        self.gated_port, self.gate_port = free_port(), free_port()
        """Clients that come in by gate_port are told to stay there; a Gate leads to gated_port."""
        self.login_address = f"127.0.0.1:{free_port()}"
        """Where USER has to log in (SASL_PLAINTEXT)."""
        self.secure_address = f"127.0.0.1:{free_port()}"
        """The same over TLS (SASL_SSL)."""
        self._config = config

    @property
    def authority(self) -> Path:
        """What to trust at secure_address."""
        return self.folder / "cert.pem"

    def format(self, *options: str) -> None:
        made = make_certificate(self.folder)
        self._keystore.write_text(made.key.read_text() + made.cert.read_text())
        login = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        super().format("--add-scram", login, *options)

    def answers(self) -> bool:
        return _brokers(self.address) > 0

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        topic = NewTopic(
            name, partitions, 1, config={key.replace("_", "."): v for key, v in config.items()}
        )
        admin.create_topics([topic])[name].result(30)

    @property
    def _keystore(self) -> Path:
        return self.folder / "keystore.pem"

    def settings(self) -> dict[str, str]:
        logins = f"LOGIN://{self.login_address},SECURE://{self.secure_address}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": (
                f"PLAINTEXT://{self.address},GATED://127.0.0.1:{self.gated_port},{logins},"
                f"CONTROLLER://{self.controller}"
            ),
            "advertised.listeners": (
                f"PLAINTEXT://{self.address},GATED://127.0.0.1:{self.gate_port},{logins}"
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,GATED:PLAINTEXT,CONTROLLER:PLAINTEXT,"
                "LOGIN:SASL_PLAINTEXT,SECURE:SASL_SSL"
            ),
            **_sasl("login"),
            **_sasl("secure"),
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(self._keystore),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker may come back once its old session is over: do not wait 9 s.
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "300",
            **{key.replace("_", "."): value for key, value in self._config.items()},
        }


class KafkaBroker(_KafkaProcess):
    """One broker more in a server's cluster: it can lead partitions, and go."""

    NODE = 2

    def __init__(self, folder: Path, server: KafkaServer) -> None:
        super().__init__(folder, server.jars)
        self._server = server

    def answers(self) -> bool:
        return _brokers(self._server.address) > 1

    def lead(self, topic: str) -> None:
        """Make a topic of one partition that is led here and copied at the server."""
        admin = AdminClient({"bootstrap.servers": self._server.address})
        made = NewTopic(topic, 1, replica_assignment=[[self.NODE, 1]])
        admin.create_topics([made])[topic].result(30)

    def settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker",
            "node.id": str(self.NODE),
            "controller.quorum.voters": f"1@{self._server.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "broker.heartbeat.interval.ms": "300",
            "broker.session.timeout.ms": "1500",
        }


def _sasl(listener: str) -> dict[str, str]:
    modules = "org.apache.kafka.common.security"
    plain = f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = f"{modules}.scram.ScramLoginModule required;"
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{prefix}.plain.sasl.jaas.config": plain,
        f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
    }


class MockKafka:
    """The stand-in: topics appear when they are named."""

    def __init__(self) -> None:
        self._cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused"})
        brokers = self._cluster.list_topics(timeout=30).brokers.values()
        self.address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        del partitions, config
        AdminClient({"bootstrap.servers": self.address}).list_topics(name, timeout=30)


def kafka_jars() -> Path | None:
    """The folder of Kafka's jars; None where Maven Central could not be reached."""
    cache = cache_folder()
    if (cache / "kafka" / ".stamp").exists():
        return cache / "kafka"
    if (cache / "kafka.unreachable").exists():
        return None
    raise RuntimeError(f"no Kafka in {cache}: run scripts/install-servers")


def _brokers(address: str) -> int:
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        return len(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return 0
