"""Ways to a PostgreSQL: TLS, certificates, passwords from files, several hosts, PgBouncer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.model.errors import StoreUnavailable
from penstock.stores.postgres import open_store
from penstock.stores.postgres.address import with_schema
from penstock.testing.store_cases.base import ending, new
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_harness import DAY_MS, MANY
from penstock.testing.store_suite import DurableStoreSuite
from systems.servers.certificates import make_certificate
from systems.servers.ports import free_port
from systems.servers.postgres import PgBouncer, PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder / "server")
    make_certificate(folder / "client", "app")
    make_certificate(folder / "stranger", "app")
    return folder


@pytest.fixture(scope="module")
def guarded(certificates: Path) -> Iterator[PostgresServer]:
    """By TLS only: `app` with a certificate, `typist` with a password."""
    with PostgresServer() as server:
        server.sql("CREATE ROLE app LOGIN SUPERUSER")
        server.sql("CREATE ROLE typist LOGIN SUPERUSER PASSWORD 'open sesame'")
        for name, file in {
            "ssl_cert_file": certificates / "server" / "cert.pem",
            "ssl_key_file": certificates / "server" / "key.pem",
            "ssl_ca_file": certificates / "client" / "cert.pem",
        }.items():
            server.sql(f"ALTER SYSTEM SET {name} = '{server.give(file)}'")
        server.sql("ALTER SYSTEM SET ssl = on")
        server.use_hba(
            [
                "hostssl all app 127.0.0.1/32 cert",
                "hostssl all typist 127.0.0.1/32 scram-sha-256",
                "hostnossl all app,typist 127.0.0.1/32 reject",
            ]
        )
        yield server


async def works(url: str) -> None:
    """Everything is written and read by this address, the waker too."""
    store = await open_store(
        url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
    )
    try:
        now = store.clock.now()
        await store.messages.put([new("here", due=now)], now)
        claim = await store.messages.claim("r", 1, 60_000, now)
        await store.messages.settle([ending(m, claim.token) for m in claim.messages], now)
        (message,) = await store.messages.find(["here"])
        assert message is not None
    finally:
        await store.close()


def address(server: PostgresServer, user: str, *options: str) -> str:
    place = f"postgresql://{user}@127.0.0.1:{server.port}/penstock"
    return with_schema(f"{place}?{'&'.join(options)}", f"s{free_port()}")


def client(certificates: Path, name: str) -> tuple[str, str]:
    folder = certificates / name
    return f"sslcert={folder}/cert.pem", f"sslkey={folder}/key.pem"


async def test_postgres_is_reached_by_tls_with_a_client_certificate(
    guarded: PostgresServer, certificates: Path
) -> None:
    trusted = f"sslrootcert={certificates}/server/cert.pem"
    own = client(certificates, "client")
    await works(address(guarded, "app", "sslmode=verify-full", trusted, *own))


@pytest.mark.parametrize(
    ("mode", "root", "own"),
    [
        ("verify-full", "stranger", "client"),
        ("verify-full", "server", "stranger"),
        ("disable", "server", "client"),
    ],
)
async def test_postgres_is_not_reached_with_the_wrong_papers(
    guarded: PostgresServer, certificates: Path, mode: str, root: str, own: str
) -> None:
    trusted = f"sslrootcert={certificates}/{root}/cert.pem"
    url = address(guarded, "app", f"sslmode={mode}", trusted, *client(certificates, own))
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
        await works(url)


async def test_the_password_comes_from_a_pgpass_file(
    guarded: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:{guarded.port}:penstock:typist:open sesame\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    await works(address(guarded, "typist", "sslmode=require"))
    file.write_text(f"127.0.0.1:{guarded.port}:penstock:typist:wrong\n")
    with pytest.raises(StoreUnavailable) as refused:
        await works(address(guarded, "typist", "sslmode=require"))
    assert "wrong'" not in str(refused.value)
    assert "sesame" not in str(refused.value)


async def test_a_service_file_names_the_server(
    guarded: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "services"
    file.write_text(
        f"[shop]\nhost=127.0.0.1\nport={guarded.port}\ndbname=penstock\nuser=typist\n"
        "password=open sesame\nsslmode=require\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    await works(with_schema("postgresql:///?service=shop", "by_service"))


async def test_of_several_hosts_the_one_that_takes_writes_is_used(
    postgres: PostgresServer,
) -> None:
    with PostgresServer(None, "fsync=off") as other:
        other.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        other.sql("SELECT pg_reload_conf()")
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{other.port},127.0.0.1:{postgres.port}"
        url = f"postgresql://penstock@{hosts}/penstock?target_session_attrs=read-write"
        await works(with_schema(url, "several"))
    assert postgres.sql("SELECT count(*) FROM several.history") == "1"
    postgres.sql("DROP SCHEMA several CASCADE")


@pytest.fixture(scope="module")
def bouncer(postgres_node: PostgresServer) -> Iterator[PgBouncer]:
    postgres_node.start()
    with PgBouncer(postgres_node, pool=4) as bouncer:
        yield bouncer


class TestBehindPgBouncer(DurableStoreSuite):
    """In transaction mode, with fewer connections than stores have among them."""

    @pytest_asyncio.fixture
    async def harness(self, bouncer: PgBouncer) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(bouncer)
        yield harness
        await harness.close()


class TestKeyedBehindPgBouncer(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self, bouncer: PgBouncer) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(bouncer)
        yield harness
        await harness.close()


async def test_behind_pgbouncer_wake_ups_are_heard_past_it(
    bouncer: PgBouncer, postgres: PostgresServer
) -> None:
    harness = PostgresHarness(bouncer)
    url = f"{harness.url}&listen=127.0.0.1:{postgres.port}"
    stores = [
        await open_store(
            url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
        )
        for _ in range(2)
    ]
    heard: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    stores[1].messages.listen(lambda route, due: heard.put_nowait((route, due)))
    now = stores[0].clock.now()
    number = 0
    while heard.empty():  # until the listener is connected
        number += 1
        due = now + 1_000_000 - number
        await stores[0].messages.put([new(f"m{number}", due=due)], now)
    route, due = heard.get_nowait()
    assert (route, due) >= ("r", now + 1_000_000 - number)
    for store in stores:
        await store.close()
    await harness.close()
