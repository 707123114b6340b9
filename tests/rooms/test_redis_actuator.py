"""`/actuator/*` on the port of a worker, and what its health says of Redis and the breaker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from penstock.api.http.scrape import ScrapeServer
from penstock.contrib import mounts
from penstock.rooms.parts import RoomParts
from penstock.settings import Settings
from penstock.settings.ports import PortRange
from penstock.stores.redis.rooms import keys as room_runner
from penstock.wiring import open_parts, open_rooms
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.rooms.redis_harness import eventually

pytestmark = pytest.mark.slow


@asynccontextmanager
async def a_dispatcher(server: RedisServer) -> AsyncIterator[tuple[RoomParts, httpx.AsyncClient]]:
    """A worker process's rooms at work, and a client of its own port."""
    settings = Settings.model_validate({"store": server.url, "rooms": {"poll": "100ms"}})
    async with open_parts(settings) as parts, open_rooms(parts) as rooms:
        assert rooms is not None
        port = free_port()
        where = PortRange("127.0.0.1", port, port)
        scrape = ScrapeServer(
            where, "worker.metrics", parts, None, rooms, mounts=mounts(parts.settings)
        )
        running = asyncio.create_task(rooms.run())
        try:
            base = f"http://127.0.0.1:{port}"
            async with scrape, httpx.AsyncClient(base_url=base, timeout=60) as client:
                yield rooms, client
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_a_worker_answers_the_actuator_on_its_own_port(redis: RedisServer) -> None:
    async with a_dispatcher(redis) as (rooms, client):
        redis.cli("HSET", "WAITING_QUEUE_INDEX_RECORD:concert", "alice", '{"instanceId":"n1"}')
        redis.cli("ZADD", "WAITING:concert", "1", "alice")
        await eventually(lambda: rooms.promoter.figures.promotions == 1)
        health = await client.get("/actuator/health")
        assert health.status_code == 200
        components = health.json()["components"]
        assert components["redis"]["status"] == components["dispatcher"]["status"] == "UP"
        assert components["dispatcher"]["details"]["breaker"] == "closed"
        names = (await client.get("/actuator/metrics")).json()["names"]
        assert "dispatcher.lua.script.duration" in names
        promotions = (await client.get("/actuator/metrics/dispatcher.promotions.total")).json()
        assert promotions["measurements"] == [{"statistic": "COUNT", "value": 1}]
        assert (await client.get("/actuator/metrics/none")).status_code == 404
        assert (await client.post("/actuator/metrics/executor.active")).status_code == 404
        assert "dispatcher_promotions_total 1.0" in (await client.get("/actuator/prometheus")).text


async def test_health_is_down_while_the_breaker_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = room_runner.PATIENCE._replace(first_open=3600.0, longest_open=3600.0)
    monkeypatch.setattr(room_runner, "PATIENCE", patience)
    with RedisServer() as server:
        async with a_dispatcher(server) as (rooms, client):
            server.kill()
            await eventually(rooms.away, 60)
            server.start()  # Redis answers again, and the breaker does not know yet
            health = await client.get("/actuator/health")
            assert (health.status_code, health.json()["status"]) == (503, "DOWN")
            dispatcher = health.json()["components"]["dispatcher"]
            assert (dispatcher["status"], dispatcher["details"]["breaker"]) == ("DOWN", "open")
