"""kafka://user:password@host:port,host:port/topic → librdkafka's configuration."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.brokers.address import Address, LoginOptions, Wrong, parse_address

PORT = 9092
Config = dict[str, str | int | float | bool]
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

log = logging.getLogger("penstock.kafka")


class KafkaOptions(LoginOptions, frozen=True, kw_only=True):
    """Options common to Kafka sinks and sources."""

    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """Mechanism by which a user and password are proven."""
    create_topic: bool = False
    """Create a missing topic; on a route also the topics that messages name."""
    partitions: int = -1
    """Partitions of a created topic; -1: the cluster's default."""
    replication: int = -1
    """Replicas of a created topic; -1: the cluster's default."""


@lru_cache(maxsize=4096)  # looked up for every message, mostly with the same name
def is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def kafka_address(url: str, wrong: Wrong) -> tuple[Address, str]:
    """The address and the topic."""
    address = parse_address(url, PORT, wrong)
    if len(address.path) != 1 or not is_topic(address.path[0]):
        raise wrong("must be kafka://host:port[,host:port]/topic")
    return address, address.path[0]


def client_config(address: Address, options: KafkaOptions, wrong: Wrong) -> Config:
    """The configuration common to all clients."""
    user, password = address.login(options)
    tls = address.context(options, wrong) is not None  # unreadable files are an error now
    config: Config = {
        "bootstrap.servers": ",".join(address.servers),
        "client.id": "penstock",
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "log_level": 2,  # lost connections reach the error callback instead
        "log.connection.close": False,
    }
    if tls:
        files = {
            "ssl.ca.location": options.tls_ca,
            "ssl.certificate.location": options.tls_cert,
            "ssl.key.location": options.tls_key,
        }
        config |= {name: path for name, path in files.items() if path is not None}
        config["enable.ssl.certificate.verification"] = options.tls_verify
    if user is not None:
        config |= {
            "sasl.mechanism": options.sasl,
            "sasl.username": user,
            "sasl.password": password or "",
        }
    if tls or user is not None:
        kind = "sasl_" if user is not None else ""
        config["security.protocol"] = kind + ("ssl" if tls else "plaintext")
    return config


def provision(config: Config, topics: Iterable[str], options: KafkaOptions) -> dict[str, str]:
    """Create missing topics; the answer is the error of each that cannot be created. Blocks."""
    names = ("bootstrap.servers", "security.", "sasl.", "ssl.", "enable.ssl", "log_level")
    admin = AdminClient({k: v for k, v in config.items() if k.startswith(names)})
    try:
        missing = [topic for topic in topics if not _exists(admin, topic)]
    except KafkaException as exc:
        return dict.fromkeys(topics, exc.args[0].str())
    if not missing:
        return {}
    new = [NewTopic(topic, options.partitions, options.replication) for topic in missing]
    troubles = {}
    for topic, made in admin.create_topics(new, operation_timeout=10).items():
        try:
            made.result(15)
        except KafkaException as exc:
            error: KafkaError = exc.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                troubles[topic] = error.str()
    return troubles


def _exists(admin: AdminClient, topic: str) -> bool:
    known = admin.list_topics(topic, timeout=10).topics.get(topic)
    return known is not None and known.error is None
