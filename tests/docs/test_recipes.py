"""The recipes for web frameworks, as their pages show them, each serving requests."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import penstock
from systems.servers.ports import free_port
from systems.servers.postgres import PostgresServer
from tests.docs import shell
from tests.docs.blocks import ROOT, blocks
from tests.servers.penstock import run_penstock
from tests.servers.proxies import NGINX, Nginx

pytestmark = pytest.mark.slow

FASTAPI = """
import os, time
from fastapi.testclient import TestClient
import app

with TestClient(app.app) as client:
    first = client.post("/users/ann", params={"delay": "1h"})
    assert first.status_code == 202, first.text
    assert client.post("/users/ann").json()["duplicate"] is True
    assert client.delete("/users/ann").json() == {"state": "cancelled"}
    assert client.delete("/users/bob").status_code == 404
    client.post("/users/eve", params={"delay": "50ms"})
    for _ in range(600):
        if app.sent == ["eve"]:
            break
        time.sleep(0.05)
    assert app.sent == ["eve"]
"""
FLASK = """
import app

client = app.app.test_client()
assert client.post("/orders?in=soon").status_code == 400  # rolled back: no order, no reminder
first = client.post("/orders?in=1 hour")
assert (first.status_code, first.json) == (201, {"order": 2})
assert client.post("/orders?in=0 s").json == {"order": 3}
assert client.delete("/orders/2").status_code == 200
assert client.delete("/orders/2").status_code == 404
assert client.post("/due", json={"order": 2}).status_code == 204  # was being sent: nothing happens
assert client.post("/due", json={"order": 3}).status_code == 204
assert client.post("/due", json={"order": 3}).status_code == 204  # a repeat changes nothing
assert client.delete("/orders/3").status_code == 409
"""
DJANGO = """
import os
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

known = conninfo_to_dict(os.environ["DATABASE"])
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": known["dbname"], "HOST": known["host"],
    "PORT": known["port"], "USER": known.get("user", ""), "PASSWORD": known.get("password", ""),
}})
import django
django.setup()
from django.http import HttpRequest
import app

for order in (1, 2, 3):
    assert app.place_order(HttpRequest()).status_code == 201
assert app.cancel("order-1") is True
assert app.cancel("order-2") is True
assert app.cancel("order-7") is False
"""
ORDERS = (
    "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, reminded timestamptz)"
)


def recipe(page: str, folder: Path) -> None:
    """The page's first program as app.py."""
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text()
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found
    (folder / "app.py").write_text(found[1])


def run(code: str, folder: Path, **env: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_fastapi_schedules_cancels_and_is_called_when_it_is_due(tmp_path: Path) -> None:
    recipe("fastapi", tmp_path)
    run(FASTAPI, tmp_path)


async def test_the_flask_service_on_postgresql_reminds_as_its_page_shows(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """createdb, psql, migrate, flask, worker and curl as they are written, on another port."""
    page = ROOT / "docs" / "guides" / "flask.md"
    recipe("flask", tmp_path)
    shown = [block for block in blocks("sh") if block.page == page]
    (settings,) = [block for block in blocks("toml") if block.page == page]
    ports = shell.Ports(*(free_port() for _ in range(5)))
    port = str(free_port())
    (tmp_path / "penstock.toml").write_text(settings.code.replace("5000", port))
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
    code = shell.script(shown, ports, around=False).replace("5000", port)
    code += "until grep -hs 'reminding of order 1' tmp.*; do sleep 0.1; done\n"
    known = conninfo_to_dict(postgres.url)
    libpq = {"PGHOST": "127.0.0.1", "PGPORT": str(known["port"]), "PGUSER": str(known["user"])}
    flask = {"FLASK_APP": "app", "FLASK_RUN_PORT": port}
    shell.run(code, tmp_path, {**shell.environment(tmp_path, ports), **libpq, **flask})


@pytest.mark.parametrize(("page", "code"), [("flask", FLASK), ("django", DJANGO)])
async def test_an_order_and_its_reminder_are_one_transaction_on_postgresql(
    page: str, code: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    recipe(page, tmp_path)
    url = postgres.url
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute(ORDERS)
    sent: asyncio.Queue[str] = asyncio.Queue()

    async def remind(message: penstock.Message) -> None:
        sent.put_nowait(message.id)

    async with penstock.open(url, routes={"reminders": remind}, worker=True) as engine:
        await asyncio.to_thread(run, code, tmp_path, DATABASE=url)
        assert (await engine.get("order-2")).state == "cancelled"
        if page == "django":
            await engine.release("order-3")
        assert await asyncio.wait_for(sent.get(), 60) == "order-3"
    assert sent.empty()


class SaleProxy(Nginx):
    """nginx with the server of the page, on ports of its own."""

    template = NGINX[: NGINX.index("  upstream")] + "{upstream}\n}}\n"

    def __init__(self, folder: Path, api: int, shop: int) -> None:
        super().__init__(folder, ("", 0))
        text = (ROOT / "docs" / "guides" / "ticket-sale.md").read_text()
        found = re.search(r"^```nginx\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert found
        listen = "{}:{}".format(*self.address)
        shown = {"listen 80": f"listen {listen}", ":8700": f":{api}", ":8800": f":{shop}"}
        self._upstream = found[1]
        for port, own in shown.items():
            assert port in self._upstream
            self._upstream = self._upstream.replace(port, own)


async def test_a_visitor_buys_a_ticket_behind_nginx_and_reaches_nothing_else(
    tmp_path: Path,
) -> None:
    shop_port, secret = free_port(), secrets.token_hex()
    example = ROOT / "examples" / "ticket-sale"
    env = {"PENSTOCK_API__TOKENS": secret}
    config = (example / "penstock.toml").read_text().replace(":8700", ":@PORT@")
    async with run_penstock(tmp_path, config, env=env) as server:
        command = [sys.executable, str(example / "shop.py"), "--port", str(shop_port)]
        shop = await asyncio.create_subprocess_exec(
            *command, "--penstock", server.url, env={**os.environ, "PENSTOCK_TOKEN": secret}
        )
        nginx = SaleProxy(tmp_path / "nginx", server.port, shop_port)
        try:
            await asyncio.to_thread(nginx.start)
            async with httpx.AsyncClient(base_url=nginx.url, timeout=60) as visitor:
                await buy(visitor)
                for path in ("/v1/rooms/sale/pause", "/v1/rooms/sale/enter", "/v1/messages"):
                    assert (await visitor.post(path, json={"token": "x"})).status_code == 404
        finally:
            nginx.stop()
            shop.terminate()
            await shop.wait()


async def buy(visitor: httpx.AsyncClient) -> None:
    for _ in range(1_000):
        if (await visitor.get("/status")).status_code == 200:
            break
        await asyncio.sleep(0.05)  # the shop is starting
    asked = await visitor.get("/buy")
    assert asked.headers["location"] == "/rooms/sale?next=/checkout"
    assert "<title>" in (await visitor.get(asked.headers["location"])).text
    place = (await visitor.post("/v1/rooms/sale/join", json={"user": "ann"})).json()
    ticket = {"x-ticket": place["ticket"]}
    while place["token"] is None:
        place = (await visitor.get("/v1/rooms/sale/tickets/ann", headers=ticket)).json()
    inside = await visitor.post("/checkout", data={"token": place["token"]})
    assert inside.headers["location"] == "/buy"
    assert "Enjoy the show" in (await visitor.post("/buy")).text
