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
ROOM, WAIT_HERE = "/v1/rooms/sale", "/rooms/sale?next=/checkout"
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
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=300) as http,
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
async def a_shop(server: str, *options: str) -> AsyncIterator[str]:
    """The shop beside Penstock, by its address."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "ticket-sale" / "shop.py"), *options),
        *("--penstock", server, "--port", str(port)),
        env={"PENSTOCK_TOKEN": TOKEN, "PYTHONPATH": ":".join(sys.path)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def a_sale(folder: Path, *options: str) -> AsyncIterator[tuple[str, str]]:
    """Penstock and the shop, by their addresses."""
    server = free_port()
    example = (EXAMPLES / "ticket-sale" / "penstock.toml").read_text()
    (folder / "penstock.toml").write_text(adapted(example, **{"8700": str(server)}))
    url = f"http://127.0.0.1:{server}"
    tokens = {"PENSTOCK_API__TOKENS": TOKEN}
    async with running(folder, "serve", env=tokens) as penstock:
        await penstock.until(lambda: str(server) in penstock.stdout)
        async with a_shop(url, *options) as shop:
            yield url, shop


async def come_in(visitor: httpx.AsyncClient, user: str) -> str:
    """Wait for the turn and enter the shop, as the page and the browser act; the token used."""
    sent_on = await visitor.get("/buy")
    assert sent_on.headers["location"] == WAIT_HERE
    ticket = (await visitor.post(f"{ROOM}/join", json={"user": user})).json()
    own = {"x-ticket": ticket["ticket"]}
    while ticket["state"] == "WAITING":
        await asyncio.sleep(0.1)
        ticket = (await visitor.get(f"{ROOM}/tickets/{user}", headers=own)).json()
    let_in = await visitor.post("/checkout", data={"token": ticket["token"]})
    assert let_in.headers["location"] == "/buy"
    return str(ticket["token"])


async def buy(shop: str, number: int) -> str:
    """One visitor; what the shop said in the end."""
    async with httpx.AsyncClient(base_url=shop, timeout=60) as visitor:
        token = await come_in(visitor, f"v{number}")
        async with httpx.AsyncClient(base_url=shop, timeout=300) as other:
            copied = await other.post("/checkout", data={"token": token})
        assert copied.headers["location"] == WAIT_HERE
        assert "<button>Buy</button>" in (await visitor.get("/buy")).text
        said = re.findall("<h1>(.*)</h1>", (await visitor.post("/buy")).text)
        return str(said[0])


async def test_a_ticket_sale_sells_every_ticket_once_and_lets_few_in(tmp_path: Path) -> None:
    async with (
        a_sale(tmp_path, "--tickets", "8", "--inside", "3") as (server, shop),
        httpx.AsyncClient(base_url=shop, timeout=300) as anybody,
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


@pytest.fixture
async def sale(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A visitor of a shop that lets in one and has five tickets, and the room's operator."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        a_sale(tmp_path, "--tickets", "5", "--inside", "1") as (server, shop),
        httpx.AsyncClient(base_url=shop, timeout=300) as visitor,
        httpx.AsyncClient(base_url=server, timeout=300, headers=headers) as operator,
    ):
        await comes(visitor, "/")
        yield visitor, operator


async def assert_sent_to_the_line(visitor: httpx.AsyncClient, method: str) -> None:
    """The shop answers as to a stranger, sells nothing and takes the cookie back."""
    assert visitor.cookies
    answer = await visitor.request(method, "/buy")
    assert (answer.status_code, answer.headers["location"]) == (303, WAIT_HERE)
    assert not visitor.cookies
    assert (await visitor.get("/status")).json() == {"left": 5, "shopping": 0}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_visitor_whose_session_has_ended_neither_sees_the_shop_nor_buys(
    method: str, sale: tuple[httpx.AsyncClient, httpx.AsyncClient]
) -> None:
    visitor, operator = sale
    room = {"capacity": 1, "session_ttl": "1ms", "public": True}
    assert (await operator.put(ROOM, json=room)).status_code == 200
    await come_in(visitor, "late")
    following = await operator.post(f"{ROOM}/join", json={"user": "next"})
    while following.json()["state"] != "ADMITTED":
        await asyncio.sleep(0.05)
        following = await operator.get(f"{ROOM}/tickets/next")
    await assert_sent_to_the_line(visitor, method)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_visitor_of_a_room_that_was_reset_lines_up_again(
    method: str, sale: tuple[httpx.AsyncClient, httpx.AsyncClient]
) -> None:
    visitor, operator = sale
    await come_in(visitor, "ann")
    assert "5 left" in (await visitor.get("/buy")).text
    assert (await operator.post(f"{ROOM}/reset")).status_code == 200
    await assert_sent_to_the_line(visitor, method)


async def test_a_shop_that_starts_again_leaves_the_room_as_it_was_changed(tmp_path: Path) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        a_sale(tmp_path, "--inside", "1") as (server, shop),
        httpx.AsyncClient(timeout=300, headers=headers) as operator,
    ):
        await comes(operator, f"{shop}/status")
        changed = {"capacity": 7, "admit_rate": "5/m", "public": True}
        made = (await operator.put(f"{server}{ROOM}", json=changed)).json()
        async with a_shop(server, "--inside", "1") as again:
            await comes(operator, f"{again}/status")
            found = (await operator.get(f"{server}{ROOM}")).json()
    assert found == made


async def test_one_command_runs_the_whole_ticket_sale() -> None:
    sale = [str(EXAMPLES / "ticket-sale" / "sale.py"), "--users", "30", "--inside", "5"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *sale, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert re.search(r"^arrived +30$", said.decode(), re.MULTILINE), said.decode()
    slots = r"^slots in use at most +[1-5] of 5$"
    assert re.search(slots, said.decode(), re.MULTILINE), said.decode()
