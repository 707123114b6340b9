"""PostgreSQL from the command line: init, serve, schedule, dashboard; what it says when away."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import penstock
from penstock.model.errors import ConfigError
from penstock.stores.postgres import schema
from penstock.stores.postgres.address import parse_address, with_schema
from penstock.stores.postgres.schema import SCHEMA_VERSION, migrations
from systems.servers.ports import free_port
from systems.servers.postgres import PostgresServer
from tests.servers.penstock import run_penstock

CONFIG = """
store = "{store}"
[api]
http = "127.0.0.1:@PORT@"
[routes.default]
sink = "log://"
"""


def run(folder: Path, store: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments, "--store", store]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_postgres_is_made_migrated_and_checked(postgres: PostgresServer, tmp_path: Path) -> None:
    url = with_schema(postgres.url, "made")
    assert "made, schema version" in run(tmp_path, url, "store", "init").stdout
    assert "up to date" in run(tmp_path, url, "store", "migrate").stdout
    assert "answers" in run(tmp_path, url, "store", "check").stdout
    postgres.sql("DROP SCHEMA made CASCADE")


@pytest.mark.parametrize("command", [("doctor",), ("list",), ("status",), ("store", "check")])
def test_a_command_that_only_looks_makes_no_schema(
    postgres: PostgresServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run(tmp_path, with_schema(postgres.url, "looked_at"), *command)
    assert "no tables of Penstock" in done.stdout + done.stderr
    assert postgres.sql("SELECT to_regnamespace('looked_at')") == ""


def test_an_error_names_the_postgres_server_and_not_its_password(tmp_path: Path) -> None:
    port = free_port()
    url = f"postgresql://ann:hush-hush@127.0.0.1:{port}/shop"
    done = run(tmp_path, url, "store", "check")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stdout + done.stderr
    assert "hush-hush" not in done.stdout + done.stderr


async def test_postgres_serves_messages_and_the_dashboard(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = with_schema(postgres.url, "served")
    async with (
        run_penstock(tmp_path, CONFIG.format(store=url)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=300) as client,
    ):
        body = {"route": "default", "payload": {"order": 42}, "id": "order-42", "delay": "10ms"}
        assert (await client.post("/v1/messages", json=body)).status_code == 201
        message: dict[str, object] = {}
        while message.get("state") != "delivered":
            message = (await client.get("/v1/messages/order-42")).json()
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
    assert "order-42" not in postgres.sql("SELECT string_agg(id, ' ') FROM served.messages")
    assert postgres.sql("SELECT id FROM served.history") == "order-42"
    postgres.sql("DROP SCHEMA served CASCADE")


async def opened_and_used(url: str, message_id: str) -> bool:
    async with penstock.open(url) as engine:
        return (await engine.schedule({}, id=message_id)).duplicate


async def test_many_processes_make_the_schema_at_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = with_schema(postgres.url, "crowded")
    command = [sys.executable, "-m", "penstock", "store", "init", "--store", url]
    processes = [
        await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [(await process.communicate())[0].decode() for process in processes]
    assert sum("made" in one for one in said) == 1
    assert sum("up to date" in one for one in said) == 3
    assert not await opened_and_used(url, "one")
    postgres.sql("DROP SCHEMA crowded CASCADE")


async def test_a_process_of_the_version_before_goes_on_beside_a_newer_schema(
    postgres: PostgresServer,
) -> None:
    """The newer one adds tables and columns, and says from which version on it serves."""
    url = with_schema(postgres.url, "newer")
    assert not await opened_and_used(url, "one")
    postgres.sql(
        "ALTER TABLE newer.messages ADD COLUMN colour TEXT DEFAULT 'red';"
        "ALTER TABLE newer.history ADD COLUMN colour TEXT;"
        f"UPDATE newer.meta SET value = '{SCHEMA_VERSION + 1}' WHERE name = 'schema_version';"
        f"UPDATE newer.meta SET value = '{SCHEMA_VERSION}' WHERE name = 'schema_serves'"
    )
    assert await opened_and_used(url, "one")
    sent = asyncio.Event()

    async def handle(_: penstock.Message) -> None:
        sent.set()

    async with penstock.open(url, routes={"default": handle}, worker=True):
        await sent.wait()
    assert postgres.sql("SELECT id FROM newer.history") == "one"
    postgres.sql(
        f"UPDATE newer.meta SET value = '{SCHEMA_VERSION + 1}' WHERE name = 'schema_serves'"
    )
    with pytest.raises(ConfigError, match="newer Penstock"):
        await opened_and_used(url, "two")
    postgres.sql("DROP SCHEMA newer CASCADE")


def first_migrations(number: int) -> list[tuple[int, str]]:
    return migrations()[:number]


async def test_a_store_of_the_first_version_is_brought_up_to_date_with_its_messages(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = with_schema(postgres.url, "aged")
    monkeypatch.setattr(schema, "migrations", lambda: first_migrations(2))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    assert schema.migrate(parse_address(url)) == (0, 2)
    postgres.sql("SELECT aged.schedule(id => 'old')")
    monkeypatch.undo()
    assert schema.migrate(parse_address(url)) == (2, SCHEMA_VERSION)
    assert await opened_and_used(url, "old"), "it is known"
    postgres.sql("DROP SCHEMA aged CASCADE")
