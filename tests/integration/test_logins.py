"""Users, passwords and TLS towards brokers that insist on them, in and out."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.flow.ingest import run_all
from penstock.model.outcome import DELIVERED, Retry, SendOutcome
from penstock.ports.source import Source, SourceOptions
from penstock.schemes import SOURCES
from penstock.settings import given
from penstock.testing.source_suite import collect
from penstock.wiring import open_parts, open_sink, open_sources
from systems.servers.certificates import make_certificate
from systems.servers.kafka import PASSWORD, USER, KafkaServer
from systems.servers.nats import NatsServer, SecureNatsServer
from systems.servers.ports import free_port
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer, tls_options
from tests.integration.brokers import message

pytestmark = pytest.mark.slow

LOGIN = f"{USER}:{PASSWORD}"
TICK = b'{"item":"user1","at":"2030-01-01T00:00:00Z"}'


@pytest.fixture
def name() -> str:
    return f"login-{uuid.uuid4()}"


async def sent(url: str, **more: object) -> SendOutcome:
    """What a route there says of one message; never with the password in it."""
    settings = given(routes={"r": {"sink": url, "timeout": "10s", **more}})
    sink = await open_sink("r", settings.routes["r"])
    (outcome,) = await sink.send([message("m-1", TICK)])
    await sink.close()
    assert PASSWORD not in sink.name + str(outcome)
    return outcome


async def read(url: str, **more: object) -> bytes:
    """What a source there gives first."""
    module, _ = SOURCES[urlsplit(url).scheme]
    source: Source = await import_module(module).open_source(
        url, SourceOptions(source="s", more=more)
    )
    (record,) = await collect(source, 1)
    await source.close()
    return record.value


def refused(outcome: SendOutcome, why: str) -> None:
    """Tried again, in case somebody mends it, and told so that they can."""
    assert isinstance(outcome, Retry)
    assert why in outcome.error.lower()


@pytest.mark.parametrize("sasl", ["PLAIN", "SCRAM-SHA-256"])
async def test_kafka_with_a_user_and_password(
    kafka_process: KafkaServer, name: str, sasl: str
) -> None:
    kafka_process.create_topic(name)
    url = f"kafka://{LOGIN}@{kafka_process.login_address}/{name}?sasl={sasl}"
    assert await sent(url) == DELIVERED
    assert await read(url) == TICK


async def test_kafka_over_tls_by_settings(kafka_process: KafkaServer, name: str) -> None:
    url = f"kafka://{kafka_process.secure_address}/{name}"
    login = {"username": USER, "password": PASSWORD, "tls_ca": str(kafka_process.authority)}
    assert await sent(url, **login, create_topic=True) == DELIVERED
    assert await read(url, **login) == TICK


async def test_kafka_refuses_a_wrong_password_and_is_not_believed_without_its_authority(
    kafka_process: KafkaServer, name: str
) -> None:
    kafka_process.create_topic(name)
    wrong = f"kafka://{USER}:wrong@{kafka_process.login_address}/{name}"
    refused(await sent(wrong, timeout="2s"), "authentication")
    unknown = f"kafka://{LOGIN}@{kafka_process.secure_address}/{name}?tls=true"
    refused(await sent(unknown, timeout="2s"), "ssl")


@pytest.mark.parametrize("by", ["url", "route"])
async def test_sim_consume_logs_in_to_kafka(
    kafka_process: KafkaServer, name: str, by: str, tmp_path: Path
) -> None:
    kafka_process.create_topic(name)
    url = f"kafka://{kafka_process.secure_address}/{name}?tls_ca={kafka_process.authority}"
    login = f'username = "{USER}"\npassword = "{PASSWORD}"\nlinger_ms = 5'
    (tmp_path / "penstock.toml").write_text(f'[routes.r]\nsink = "{url}"\n{login}\n')
    assert await sent(url, username=USER, password=PASSWORD) == DELIVERED
    with_login = url.replace("kafka://", f"kafka://{LOGIN}@")
    where = ("--route", "r") if by == "route" else ("--brokers", with_login)
    ending = ("--count", "1", "--duration", "60s")
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, "-m", "penstock", "sim", "consume", "--json", *where, *ending],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["consumed"] == 1
    assert PASSWORD not in done.stderr


@pytest.fixture
def rabbitmq_user(rabbitmq: RabbitServer) -> RabbitServer:
    """With our user."""
    rabbitmq.admin("declare", "user", f"name={USER}", f"password={PASSWORD}", "tags=")
    rights = ("configure=.*", "write=.*", "read=.*")
    rabbitmq.admin("declare", "permission", "vhost=/", f"user={USER}", *rights)
    return rabbitmq


async def test_rabbitmq_over_tls_with_a_user_and_password(
    rabbitmq_user: RabbitServer, name: str
) -> None:
    address, trust = rabbitmq_user.secure_address, {"tls_ca": str(rabbitmq_user.authority)}
    outcome = await sent(f"amqps://{LOGIN}@{address}/{name}", **trust, create_topic=True)
    assert outcome == DELIVERED
    login = {"username": USER, "password": PASSWORD}
    assert await read(f"rabbitmq://{address}/{name}", **trust, **login) == TICK


async def test_rabbitmq_is_not_believed_without_its_authority(
    rabbitmq_user: RabbitServer, name: str
) -> None:
    outcome = await sent(f"amqps://{LOGIN}@{rabbitmq_user.secure_address}/{name}")
    refused(outcome, "certificate verify failed")


@pytest.fixture(scope="module")
def nats_secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNatsServer]:
    server = SecureNatsServer(tmp_path_factory.mktemp("nats-tls"))
    server.start()
    yield server
    server.stop()


async def test_nats_over_tls_with_a_user_and_password(
    nats_secure: SecureNatsServer, name: str
) -> None:
    trust = {"tls_ca": str(nats_secure.authority)}
    url = f"tls://{LOGIN}@{nats_secure.address}/{name}"
    assert await sent(url, **trust, create_topic=True) == DELIVERED
    login = {"username": USER, "password": PASSWORD}
    assert await read(f"nats://{nats_secure.address}/{name}", **trust, **login) == TICK


async def test_nats_refuses_a_wrong_password_and_is_not_believed_without_its_authority(
    nats_secure: SecureNatsServer, name: str
) -> None:
    wrong = f"tls://{USER}:wrong@{nats_secure.address}/{name}"
    refused(await sent(wrong, tls_ca=str(nats_secure.authority)), "authorization")
    unknown = f"tls://{LOGIN}@{nats_secure.address}/{name}"
    refused(await sent(unknown), "certificate verify failed")


async def test_a_dead_letter_at_the_same_nats_logs_in_as_its_source_does(
    nats_secure: SecureNatsServer, name: str
) -> None:
    broker = f"nats://{nats_secure.address}"
    login = {"username": USER, "password": PASSWORD, "tls_ca": str(nats_secure.authority)}
    source = {"from": f"{broker}/{name}", "dead_letter": f"{broker}/{name}-dead", **login}
    assert await sent(f"{broker}/{name}", **login, create_topic=True) == DELIVERED
    settings = given(store="sqlite:///:memory:", sources={"s": source})
    async with open_parts(settings) as parts, open_sources(parts) as ingests:
        reading = asyncio.ensure_future(run_all(ingests))
        assert await read(f"{broker}/{name}-dead", **login, create_topic=True) == TICK
        reading.cancel()
        await asyncio.wait({reading})


async def test_nothing_is_said_to_a_nats_server_without_tls_when_tls_is_asked_for(
    nats: NatsServer, name: str
) -> None:
    outcome = await sent(f"tls://{LOGIN}@{nats.address}/{name}")
    refused(outcome, "does not offer it")


async def test_a_redis_stream_over_tls_with_a_password(tmp_path: Path, name: str) -> None:
    certificate, port = make_certificate(tmp_path), free_port()
    with RedisServer(*tls_options(port, certificate), "--requirepass", PASSWORD) as server:
        url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/{name}"
        assert await sent(url, tls_ca=str(certificate.cert)) == DELIVERED
        refused(await sent(url), "certificate verify failed")
        assert server.cli("--no-auth-warning", "-a", PASSWORD, "XLEN", name) == "1"
