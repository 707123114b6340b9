"""examples/dispatcher and examples/ticket-sale, run as their pages say."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import jwt
import pytest

from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.acceptance.commands import EXAMPLES, adapted, run, running

pytestmark = pytest.mark.slow

TOKEN, KEY = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
KEYS = {"PENSTOCK_ROOMS__KEYS": json.dumps([{"kid": "2026-11", "secret": KEY}])}


async def comes(look: httpx.AsyncClient, path: str, status: int = 200) -> httpx.Response:
    """The answer, once there is one."""
    async with asyncio.timeout(300):
        while True:
            try:
                answer = await look.get(path)
                if answer.status_code == status:
                    return answer
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def test_the_dispatcher_serves_brokers_that_know_only_redis(
    tmp_path: Path, redis: RedisServer
) -> None:
    port = free_port()
    example = (EXAMPLES / "dispatcher" / "penstock.toml").read_text()
    changes = {"redis://localhost:6379/0": redis.url, "127.0.0.1:9002": f"127.0.0.1:{port}"}
    (tmp_path / "penstock.toml").write_text(adapted(example, **changes))
    redis.cli("SET", "ENTRY_QUEUE_SLOTS:concert", "999")  # one slot is left
    redis.cli("ZADD", "WAITING:concert", "1700000001", "alice", "1700000002", "bob")
    async with (
        running(tmp_path, "serve", env=KEYS) as dispatcher,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        await dispatcher.until(lambda: redis.cli("XLEN", "DISPATCH") == "1")
        assert redis.cli("GET", "ENTRY_QUEUE_SLOTS:concert") == "1000"
        redis.cli("DECR", "ENTRY_QUEUE_SLOTS:concert")
        await dispatcher.until(lambda: redis.cli("XLEN", "DISPATCH") == "2")
        entries = json.loads(redis.cli("--json", "XRANGE", "DISPATCH", "-", "+"))
        told = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
        assert [one["userId"] for one in told] == ["alice", "bob"]
        claims = jwt.decode(told[0]["entryToken"], KEY, ["HS256"], audience="concert")
        assert (claims["iss"], claims["sub"]) == ("penstock", "alice")
        health = (await http.get("/actuator/health")).json()
        assert (health["status"], health["queueSize"]) == ("UP", 0)
        assert health["components"]["redis"]["status"] == "UP"
        assert health["threadPoolActive"] <= 10
        active = (await http.get("/actuator/metrics/executor.active")).json()
        assert active["name"] == "executor.active"
        assert (
            "dispatcher_promotions_total" in (await http.get("/actuator/metrics")).json()["names"]
        )
        prometheus = (await http.get("/actuator/prometheus")).text
        assert "dispatcher_promotions_total 2.0" in prometheus
        log = tmp_path / "logs" / "dispatcher.log"
        await dispatcher.until(lambda: "Promotions per second: " in log.read_text())


@asynccontextmanager
async def a_sale(folder: Path, *options: str) -> AsyncIterator[tuple[str, str]]:
    """Penstock and the shop, by their addresses."""
    server, shop = free_port(), free_port()
    example = (EXAMPLES / "ticket-sale" / "penstock.toml").read_text()
    (folder / "penstock.toml").write_text(adapted(example, **{"8700": str(server)}))
    url = f"http://127.0.0.1:{server}"
    tokens = {"PENSTOCK_API__TOKENS": TOKEN}
    async with running(folder, "serve", env=tokens) as penstock:
        await penstock.until(lambda: str(server) in penstock.stdout)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLES / "ticket-sale" / "shop.py"), *options),
            *("--penstock", url, "--port", str(shop)),
            env={"PENSTOCK_TOKEN": TOKEN, "PYTHONPATH": ":".join(sys.path)},
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            yield url, f"http://127.0.0.1:{shop}"
        finally:
            process.terminate()
            await process.wait()


async def buy(shop: str, number: int) -> str:
    """One visitor, as the page and the browser act; what the shop said in the end."""
    async with httpx.AsyncClient(base_url=shop, timeout=60) as visitor:
        sent_on = await visitor.get("/buy")
        assert sent_on.headers["location"] == "/rooms/sale?next=/checkout"
        room = "/v1/rooms/sale"
        ticket = (await visitor.post(f"{room}/join", json={"user": f"v{number}"})).json()
        own = {"x-ticket": ticket["ticket"]}
        while ticket["state"] == "WAITING":
            await asyncio.sleep(0.1)
            ticket = (await visitor.get(f"{room}/tickets/v{number}", headers=own)).json()
        let_in = await visitor.post("/checkout", data={"token": ticket["token"]})
        assert let_in.headers["location"] == "/buy"
        async with httpx.AsyncClient(base_url=shop) as other:
            copied = await other.post("/checkout", data={"token": ticket["token"]})
        assert copied.headers["location"] == "/rooms/sale?next=/checkout"
        assert "<button>Buy</button>" in (await visitor.get("/buy")).text
        said = re.findall("<h1>(.*)</h1>", (await visitor.post("/buy")).text)
        return str(said[0])


async def test_a_ticket_sale_sells_every_ticket_once_and_lets_few_in(tmp_path: Path) -> None:
    async with (
        a_sale(tmp_path, "--tickets", "8", "--inside", "3") as (server, shop),
        httpx.AsyncClient(base_url=shop) as anybody,
    ):
        assert "8 left" in (await comes(anybody, "/")).text
        assert 'type="module"' in (await anybody.get("/rooms/sale")).text
        assert (await anybody.post("/v1/rooms/sale/pause")).status_code == 404
        said = await asyncio.gather(*(buy(shop, number) for number in range(12)))
        assert sorted(said) == ["Enjoy the show"] * 8 + ["Sold out"] * 4
        assert (await anybody.get("/status")).json() == {"left": 0, "shopping": 0}
        crowd = await run(
            *(tmp_path, "sim", "crowd", "sale", "--url", server, "--token", TOKEN, "--json"),
            *("--users", "9", "--within", "1s", "--session", "100ms", "--abandon", "0"),
        )
        totals = json.loads(crowd)
        assert (totals["left"], totals["lost"], totals["capacity"]) == (9, 0, 3)
        assert totals["most_inside"] <= 3


async def test_one_command_runs_the_whole_ticket_sale() -> None:
    sale = [str(EXAMPLES / "ticket-sale" / "sale.py"), "--users", "30", "--inside", "5"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *sale, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert re.search(r"^arrived +30$", said.decode(), re.MULTILINE), said.decode()
    assert re.search(r"^inside at most +[1-5] of 5$", said.decode(), re.MULTILINE), said.decode()
