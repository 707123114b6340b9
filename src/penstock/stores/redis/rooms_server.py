"""One Redis server or a cluster, as rooms see it."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from penstock.stores.redis.rooms_link import Argument, Reply

_SETTINGS: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "protocol": 2}
"""Retries are ours to make: only we know what is safe to repeat."""


class SingleServer:
    """One server (or a primary with replicas)."""

    cluster = False

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        self._url = url
        self._client = Redis.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout, **_SETTINGS
        )

    async def call(self, *command: Argument) -> Reply:
        return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # theirs

    async def scan(self, match: str, count: int, kind: str) -> list[bytes]:
        found: list[bytes] = []
        cursor = 0
        while True:
            reply = await self.call("SCAN", cursor, "MATCH", match, "COUNT", count, "TYPE", kind)
            cursor = int(reply[0])
            found += reply[1]
            if cursor == 0:
                return found

    def subscriber(self) -> tuple[PubSub, Redis]:
        client = Redis.from_url(self._url, **_SETTINGS)
        return client.pubsub(ignore_subscribe_messages=True), client

    async def close(self) -> None:
        await self._client.aclose(close_connection_pool=True)


class ClusterServer:
    """Redis Cluster: every command goes to the node that serves its key."""

    cluster = True

    def __init__(self, host: str, port: int, *, timeout: float = 5.0) -> None:
        self._client = RedisCluster(
            host=host,
            port=port,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            **_SETTINGS,
        )
        self._asked = 0

    async def call(self, *command: Argument) -> Reply:
        return await self._client.execute_command(*command)

    async def scan(self, match: str, count: int, kind: str) -> list[bytes]:
        await self._client.initialize()
        found: list[bytes] = []
        for node in self._client.get_primaries():
            cursor = 0
            while True:
                reply = await node.execute_command(
                    "SCAN", cursor, "MATCH", match, "COUNT", count, "TYPE", kind
                )
                cursor = int(reply[0])
                found += reply[1]
                if cursor == 0:
                    break
        return found

    def subscriber(self) -> tuple[PubSub, Redis]:
        """On one node after the other: each hears everything that is published anywhere."""
        nodes = self._client.get_nodes()
        self._asked += 1
        node = nodes[self._asked % len(nodes)]
        client = Redis(host=str(node.host), port=int(node.port), **_SETTINGS)
        return client.pubsub(ignore_subscribe_messages=True), client

    async def close(self) -> None:
        await self._client.aclose()
