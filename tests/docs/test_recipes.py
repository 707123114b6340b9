"""The recipes for web frameworks, as their pages show them, each serving requests."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import penstock
from systems.servers.postgres import PostgresServer
from tests.docs.blocks import ROOT

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
assert client.post("/orders/1?in=1 hour").status_code == 201
assert client.post("/orders/2?in=0 s").status_code == 201
assert client.delete("/orders/1").json == {"cancelled": True}
try:
    client.post("/orders/2")  # the order is there already: nothing is scheduled either
except app.psycopg.errors.UniqueViolation:
    pass
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

assert app.place_order(HttpRequest(), 1).status_code == 201
assert app.cancel("order-1") is True
assert app.cancel("order-7") is False
assert app.place_order(HttpRequest(), 2).status_code == 201
"""


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


@pytest.mark.parametrize(("page", "code"), [("flask", FLASK), ("django", DJANGO)])
async def test_an_order_and_its_reminder_are_one_transaction_on_postgresql(
    page: str, code: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    recipe(page, tmp_path)
    url = postgres.url
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS penstock CASCADE")
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
    sent: asyncio.Queue[str] = asyncio.Queue()

    async def remind(message: penstock.Message) -> None:
        sent.put_nowait(message.id)

    async with penstock.open(url, routes={"reminders": remind}, worker=True) as engine:
        await asyncio.to_thread(run, code, tmp_path, DATABASE=url)
        assert (await engine.get("order-1")).state == "cancelled"
        if page == "django":
            await engine.release("order-2")
        assert await asyncio.wait_for(sent.get(), 60) == "order-2"
    assert sent.empty()
