"""PostgreSQL from the command line: init, serve, schedule, dashboard; what it says when away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from penstock.stores.postgres.address import with_schema
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
        httpx.AsyncClient(base_url=server.url) as client,
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
