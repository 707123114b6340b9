"""Servers as fixtures: each starts once in a test run, when the first test asks for it.

With `--dist loadgroup` all tests of one server run in one worker process, so that there is
one server of each kind and nobody restarts it under another test. What tells them apart is the
server's name in the test's own (file, class or function): the controller knows no more of a test.
(xdist's own marks do not reach it with the pytest we use.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # it has no types

from systems.servers.dynamodb import DynamoServer, dynamo_server, dynamodb_jars
from systems.servers.kafka import Kafka, KafkaServer, MockKafka, kafka_jars
from systems.servers.nats import NatsServer
from systems.servers.postgres import (
    OldestPostgres,
    PostgresServer,
    is_oldest_postgres_at_hand,
)
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer

GROUPS = ("kafka", "rabbitmq", "nats", "dynamodb", "postgres")
"""The slow to start first: a test that uses several belongs to the first of them."""
BROWSER = "tests/browser/"
"""Tests that share one Chromium, and one server with traffic that it looks at."""
NEEDS_PROCESS = "kafka_process"
OLDEST = "oldest_postgres"
UNSAFE = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    jars = kafka_jars()
    if jars is None:
        yield MockKafka()
        return
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), jars)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def kafka(kafka_cluster: Kafka) -> Kafka:
    """A Kafka that answers, whatever the test before did to it."""
    if isinstance(kafka_cluster, KafkaServer):
        kafka_cluster.start()
    return kafka_cluster


@pytest.fixture
def kafka_process(kafka: Kafka) -> KafkaServer:
    """A Kafka that may be stopped and killed; tests of this are left out with the stand-in."""
    assert isinstance(kafka, KafkaServer)
    return kafka


@pytest.fixture(scope="session")
def rabbitmq_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    server = RabbitServer(tmp_path_factory.mktemp("rabbitmq"))
    server.start()
    yield server
    server.kill()  # its orderly end takes seconds and nobody needs the data


@pytest.fixture
def rabbitmq(rabbitmq_node: RabbitServer) -> RabbitServer:
    rabbitmq_node.start()
    return rabbitmq_node


@pytest.fixture(scope="session")
def nats_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def nats(nats_node: NatsServer) -> NatsServer:
    nats_node.start()
    return nats_node


@pytest.fixture(scope="session")
def dynamodb_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoServer]:
    server = dynamo_server(tmp_path_factory.mktemp("dynamodb"))
    server.start()
    yield server
    server.kill()  # it keeps nothing


@pytest.fixture
def dynamodb(dynamodb_node: DynamoServer) -> DynamoServer:
    dynamodb_node.start()
    return dynamodb_node


@pytest.fixture(scope="session")
def postgres_node() -> Iterator[PostgresServer]:
    # Nobody pulls the plug here; tests that do have a server of their own.
    server = PostgresServer(None, *UNSAFE)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def postgres(postgres_node: PostgresServer) -> PostgresServer:
    postgres_node.start()
    return postgres_node


@pytest.fixture(scope="session")
def oldest_postgres() -> Iterator[PostgresServer]:
    server = OldestPostgres(*UNSAFE)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def redis_node() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis(redis_node: RedisServer) -> RedisServer:
    """An empty Redis, for whatever is not the store; it is up in no time, in every worker."""
    redis_node.flush()
    return redis_node


def pytest_itemcollected(item: pytest.Item) -> None:
    used = _fixtures(item)
    group = next((name for name in GROUPS if name in used), None)
    if group is not None and server_of(item.nodeid) != group:
        raise pytest.UsageError(f"{item.nodeid} uses {group} and should have it in its name")
    if group is not None or "redis" in used or OLDEST in used:
        item.add_marker(pytest.mark.slow)


def server_of(nodeid: str) -> str | None:
    """The server whose tests it runs with."""
    name = nodeid.lower()
    return next((group for group in GROUPS if group in name), None)


class ServerScheduling(LoadScopeScheduling):  # type: ignore[misc] # as above
    """The tests of a server or of the browser go to one worker, the others to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(BROWSER):
            return BROWSER
        return server_of(nodeid) or nodeid

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # one that replaces a crashed worker reads first
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return ServerScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)  # after `-m`: the fast tests need no server, and none installed
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    with_kafka = [item for item in items if "kafka" in _fixtures(item)]
    if with_kafka and not _real_kafka():
        left_out = [item for item in with_kafka if NEEDS_PROCESS in _fixtures(item)]
        _leave_out(config, items, left_out)
    with_oldest = [item for item in items if OLDEST in _fixtures(item)]
    if with_oldest and not is_oldest_postgres_at_hand():
        _leave_out(config, items, with_oldest)


def _leave_out(config: pytest.Config, items: list[pytest.Item], some: list[pytest.Item]) -> None:
    items[:] = [item for item in items if item not in some]
    config.hook.pytest_deselected(items=some)


def _real_kafka() -> bool:
    try:
        return kafka_jars() is not None
    except RuntimeError as exc:
        raise pytest.UsageError(str(exc)) from exc


def _fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line when a stand-in was used; counted from reports, which xdist's controller has too."""
    ran = Counter(
        server_of(report.nodeid)
        for kind in ("passed", "failed", "error")
        for report in terminalreporter.getreports(kind)
    )
    if ran["kafka"] and not _real_kafka():
        terminalreporter.write_line(
            f"Maven Central could not be reached: {ran['kafka']} Kafka tests ran against "
            "librdkafka's mock cluster (those that stop the broker were left out)"
        )
    if ran["dynamodb"] and dynamodb_jars() is None:
        terminalreporter.write_line(
            f"Maven Central could not be reached: {ran['dynamodb']} DynamoDB tests ran against "
            "moto's server"
        )
    if ran["postgres"] and not is_oldest_postgres_at_hand():
        terminalreporter.write_line(
            "Maven Central could not be reached: PostgreSQL 13 was not tried"
        )
