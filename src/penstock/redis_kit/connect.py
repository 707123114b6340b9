"""URL → a connected client, one server or a cluster behind the same few calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from redis import exceptions as vendor
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, SSLConnection
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.cluster import PRIMARY
from redis.crc import key_slot
from redis.typing import EncodableT

from penstock.redis_kit.address import Address
from penstock.redis_kit.lines import Argument, Lines, heeding, packed

__all__ = ["Argument", "Cursors", "Reply", "Server", "connect", "stream_client"]

_ON_LINES = frozenset({"EVALSHA", "HMGET", "TIME"})
"""Commands that are sent often, or must be answered without delay."""
_NO_RETRY: Mapping[str, Any] = {
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
    "client_name": "penstock",
}
"""Of every connection. Repetitions are the caller's: it knows which calls are safe to repeat."""
Cursors: TypeAlias = dict[str, int]
"""Node → where its SCAN goes on."""
Reply: TypeAlias = Any
"""An answer as redis-py returns it, without a type; the caller knows its script's."""


class Server(Protocol):
    """The calls of Redis that everything here is made of."""

    cluster: bool

    def call(self, *command: Argument) -> Awaitable[Reply]:
        """One command that names its key, or that any node can answer."""
        ...

    def quick(self, command: bytes) -> Awaitable[Reply] | None:
        """Send a packed command over an open, free connection; None if there is none.

        Nothing was sent then: use `call`.
        """
        ...

    async def in_a_row(self, key: bytes, *commands: Sequence[Argument]) -> list[Reply]:
        """Commands about this key, in this order on one connection."""
        ...

    async def each(self, *command: Argument) -> dict[str, Reply]:
        """The command on every primary, by the node's name."""
        ...

    async def scan(
        self, cursors: Cursors, match: str, count: int, kind: str
    ) -> tuple[list[bytes], Cursors]:
        """One step of about `count` keys on each primary: names of that kind, and how to go on.

        Without cursors a pass begins; it has ended when there are none any more.
        """
        ...

    def subscriber(self) -> tuple[PubSub, Redis]:
        """A new subscription and its client; the caller closes both."""
        ...

    async def reconnect(self) -> None:
        """Drop the connections and find the primaries again, after a failover."""
        ...

    async def close(self) -> None: ...


def connect(address: Address) -> Server:
    """A client of one server or of a cluster; it connects with the first call."""
    return ClusterServer(address) if address.cluster else SingleServer(address)


def _settings(address: Address) -> dict[str, Any]:
    return {
        "username": address.username,
        "password": address.password,
        "socket_timeout": address.timeout,
        "socket_connect_timeout": address.connect_timeout,
        **_NO_RETRY,
    }


def _tls(address: Address) -> dict[str, Any]:
    options = address.options
    return {
        "ssl_ca_certs": options.ssl_ca_certs,
        "ssl_certfile": options.ssl_certfile,
        "ssl_keyfile": options.ssl_keyfile,
        "ssl_check_hostname": options.ssl_check_hostname,
    }


def _single(address: Address, host: str, port: int, connections: int) -> Redis:
    seconds, settings = address.timeout, {**_settings(address), "db": address.db}
    if address.socket is not None:
        return _client(_Unix, connections, seconds, **settings, path=address.socket)
    settings |= {"host": host, "port": port}
    if address.tls:
        return _client(_Tls, connections, seconds, **settings, **_tls(address))
    return _client(_Tcp, connections, seconds, **settings)


def stream_client(connections: int, *, tls: Mapping[str, Any] | None, **settings: Any) -> Redis:
    """A client for other programs' streams: no time-out and no repetition but the caller's own."""
    if tls is None:
        return _client(_Tcp, connections, None, **_NO_RETRY, **settings)
    return _client(_Tls, connections, None, **_NO_RETRY, **settings, **tls)


def _client(
    kind: type[Connection | UnixDomainSocketConnection],
    connections: int,
    timeout: float | None,
    **settings: Any,
) -> Redis:
    """`timeout`: how long a call waits for a free connection."""
    pool = BlockingConnectionPool(
        connection_class=kind, max_connections=connections, timeout=timeout, **settings
    )
    return Redis.from_pool(pool)


class _PacksInC:
    """Packs commands by hiredis: redis-py does it in Python."""

    def pack_command(self, *args: EncodableT) -> list[bytes]:
        if isinstance(args[0], str) and " " in args[0]:
            args = (*args[0].split(), *args[1:])
        return [packed(args)]  # type: ignore[arg-type] # numbers are whole here


class _Tcp(_PacksInC, Connection):
    """Over TCP."""


class _Tls(_PacksInC, SSLConnection):
    """Over TLS."""


class _Unix(_PacksInC, UnixDomainSocketConnection):
    """Over a unix socket."""


async def _scan(
    nodes: Mapping[str, Callable[..., Awaitable[Reply]]], cursors: Cursors, how: Sequence[Argument]
) -> tuple[list[bytes], Cursors]:
    found: list[bytes] = []
    left: Cursors = {}
    for name, cursor in (cursors or dict.fromkeys(nodes, 0)).items():
        if name in nodes:
            reply = await nodes[name]("SCAN", cursor, *how)
            found += reply[1]
            if int(reply[0]):
                left[name] = int(reply[0])
    return found, left


class SingleServer:
    """One server (or a primary with replicas)."""

    cluster = False

    def __init__(self, address: Address) -> None:
        self._address = address
        host, port = address.hosts[0] if address.hosts else ("", 0)
        lines = address.options.max_connections // 2
        self._client = _single(address, host, port, address.options.max_connections - lines)
        make = self._client.connection_pool.make_connection
        self._lines = Lines(make, most=lines, seconds=address.timeout)

    def call(self, *command: Argument) -> Awaitable[Reply]:
        if command[0] in _ON_LINES and self._lines.has_one:
            return self._lines.ask(command)
        return heeding(self._client.execute_command(*command))  # type: ignore[no-untyped-call]

    def quick(self, command: bytes) -> Awaitable[Reply] | None:
        return self._lines.quick(command)

    async def in_a_row(
        self,
        key: bytes,  # noqa: ARG002 - a cluster needs it
        *commands: Sequence[Argument],
    ) -> list[Reply]:
        async with self._client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Reply] = await heeding(pipe.execute())
        return replies

    async def each(self, *command: Argument) -> dict[str, Reply]:
        return {self._address.name: await self.call(*command)}

    async def scan(
        self, cursors: Cursors, match: str, count: int, kind: str
    ) -> tuple[list[bytes], Cursors]:
        how = ("MATCH", match, "COUNT", count, "TYPE", kind)
        return await _scan({self._address.name: self.call}, cursors, how)

    def subscriber(self) -> tuple[PubSub, Redis]:
        host, port = self._address.hosts[0] if self._address.hosts else ("", 0)
        client = _single(self._address, host, port, 2)
        return client.pubsub(ignore_subscribe_messages=True), client

    async def reconnect(self) -> None:
        """A new primary behind the same address is reached by connecting again."""
        await self._lines.drop()
        await self._client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        await self._lines.drop()
        await self._client.aclose(close_connection_pool=True)


class ClusterServer:
    """Redis Cluster: every command goes to the node that serves its key."""

    cluster = True

    def __init__(self, address: Address) -> None:
        self._address = address
        tls = {"ssl": True, **_tls(address)} if address.tls else {}
        self._client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            max_connections=address.options.max_connections,
            **_settings(address),
            **tls,
        )
        self._subscribed = 0

    def call(self, *command: Argument) -> Awaitable[Reply]:
        return heeding(self._client.execute_command(*command))

    def quick(self, command: bytes) -> None:  # noqa: ARG002 - its key says where it goes
        return None

    async def in_a_row(self, key: bytes, *commands: Sequence[Argument]) -> list[Reply]:
        await self._client.initialize()
        node = self._client.nodes_manager.get_node_from_slot(key_slot(key))
        connection = node.acquire_connection()
        try:
            await heeding(connection.connect())  # type: ignore[no-untyped-call]
            await connection.send_packed_command(connection.pack_commands(commands))
            replies = [await node.parse_response(connection, str(c[0])) for c in commands]
        except BaseException as exc:
            # The other answers would be taken for those of the next commands.
            await connection.disconnect(nowait=True)
            if isinstance(exc, vendor.AskError):
                raise vendor.TryAgainError(str(exc)) from exc
            raise
        finally:
            node.release(connection)
        return replies

    async def each(self, *command: Argument) -> dict[str, Reply]:
        await self._client.initialize()
        nodes = [n for n in self._client.get_primaries() if n.server_type == PRIMARY]
        return {
            node.name: await self._client.execute_command(*command, target_nodes=node)
            for node in nodes
        }

    async def scan(
        self, cursors: Cursors, match: str, count: int, kind: str
    ) -> tuple[list[bytes], Cursors]:
        await self._client.initialize()
        nodes = {str(node.name): node.execute_command for node in self._client.get_primaries()}
        return await _scan(nodes, cursors, ("MATCH", match, "COUNT", count, "TYPE", kind))

    def subscriber(self) -> tuple[PubSub, Redis]:
        """On one node after the other: every node forwards what any publishes."""
        nodes = [(str(n.host), int(n.port)) for n in self._client.get_nodes()]
        nodes = nodes or list(self._address.hosts)
        self._subscribed += 1
        host, port = nodes[self._subscribed % len(nodes)]
        client = _single(self._address, host, port, 2)
        return client.pubsub(ignore_subscribe_messages=True), client

    async def reconnect(self) -> None:
        await self._client.aclose()
        await self._client.initialize()

    async def close(self) -> None:
        await self._client.aclose()
