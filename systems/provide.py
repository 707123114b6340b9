"""The servers of a system: own ones on free ports, or those that run already.

Own servers keep their data in a temporary folder and go with the run. `RUNNING=1` (or --running)
takes a server that answers on its standard port of 127.0.0.1; one that is not there is started.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from systems.children import Usage
from systems.servers.dynamodb import dynamo_server
from systems.servers.kafka import KafkaServer, MockKafka, kafka_jars
from systems.servers.nats import NatsServer
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from systems.spec import ServerName

HOST = "127.0.0.1"
STANDARD: Mapping[ServerName, int] = {
    "redis": 6379,
    "kafka": 9092,
    "rabbitmq": 5672,
    "nats": 4222,
    "dynamodb": 8000,
}
URLS: Mapping[ServerName, str] = {
    "redis": "redis://{}/0",
    "kafka": "kafka://{}",
    "rabbitmq": "amqp://guest:guest@{}",
    "nats": "nats://{}",
    "dynamodb": "dynamodb+redis://local:local@{}",
}


class OwnServer(Protocol):
    """A server that belongs to this run."""

    @property
    def pid(self) -> int: ...
    @property
    def running(self) -> bool: ...
    def start(self) -> None: ...
    def last_words(self) -> str: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(slots=True)
class Server:
    """A server of the system."""

    name: ServerName
    address: str
    own: OwnServer | None = None
    """None: it was running before, or is a stand-in inside this process."""
    usage: Usage | None = None
    note: str = ""

    def start(self) -> None:
        """Return when it answers; RuntimeError says why it does not."""
        if self.own is not None:
            self.own.start()
            self.usage = Usage(self.own.pid)

    @property
    def died(self) -> bool:
        return self.own is not None and not self.own.running

    def words(self) -> dict[str, str]:
        """What texts of a spec may name."""
        host, _, port = self.address.rpartition(":")
        return {
            self.name: self.address,
            f"{self.name}_host": host,
            f"{self.name}_port": port,
            f"{self.name}_url": URLS[self.name].format(self.address),
        }


def running_server(name: ServerName) -> Server | None:
    """The one on its standard port; None where nobody listens."""
    try:
        with socket.create_connection((HOST, STANDARD[name]), timeout=1):
            return Server(name, f"{HOST}:{STANDARD[name]}", note="running already, left as it is")
    except OSError:
        return None


def own_server(name: ServerName, folder: Path) -> Server:
    """One of our own, not started yet."""
    return _MAKERS[name](folder / name)


def _redis(folder: Path) -> Server:
    own = RedisServer(aof=True, folder=folder, started=False)
    return Server("redis", f"{HOST}:{own.port}", own)


def _kafka(folder: Path) -> Server:
    jars = kafka_jars()
    if jars is None:
        _STAND_INS.append(stand_in := MockKafka())
        return Server("kafka", stand_in.address, note="a stand-in: Maven Central was not reached")
    own = KafkaServer(folder, jars)
    return Server("kafka", own.address, own)


def _rabbitmq(folder: Path) -> Server:
    own = RabbitServer(folder)
    return Server("rabbitmq", own.address, own)


def _nats(folder: Path) -> Server:
    own = NatsServer(folder)
    return Server("nats", own.address, own)


def _dynamodb(folder: Path) -> Server:
    own = dynamo_server(folder)
    return Server("dynamodb", own.host, own)


_MAKERS: Mapping[ServerName, Callable[[Path], Server]] = {
    "redis": _redis,
    "kafka": _kafka,
    "rabbitmq": _rabbitmq,
    "nats": _nats,
    "dynamodb": _dynamodb,
}
_STAND_INS: list[object] = []
"""Kept alive: a stand-in serves for as long as it is referenced."""
