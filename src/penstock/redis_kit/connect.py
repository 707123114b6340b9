"""URL → a connected client: one server or a cluster behind one interface.

Scripts use connections of their own. A pool with locks, time-outs and hooks costs redis-py several
times the CPU of the call itself, and nearly all calls of a store are scripts. So a few connections
are held here: redis-py opens them (TLS, login, database), and then a call is one write and one
answer. A connection that failed in any way, or that the server closed, is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import hiredis
from redis import exceptions as vendor
from redis._parsers.base import BaseParser
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

Argument: TypeAlias = bytes | str | int
T = TypeVar("T")

_ON_LINES = frozenset({"EVALSHA", "HMGET", "TIME"})
"""Commands that are frequent, or must be answered without delay."""
_NO_RETRY: Mapping[str, Any] = {
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
    "client_name": "penstock",
}
"""Settings of every connection. Callers repeat: they know which calls are safe to repeat."""
Cursors: TypeAlias = dict[str, int]
"""Node → its SCAN cursor."""
Reply: TypeAlias = Any
"""An answer as redis-py returns it; untyped, since its shape depends on the script."""


class Server(Protocol):
    """The Redis calls that this package is built on."""

    cluster: bool

    def call(self, *command: Argument) -> Awaitable[Reply]:
        """Send one command that names its key, or that any node can answer."""
        ...

    def quick(self, command: bytes) -> Awaitable[Reply] | None:
        """Send a packed command over an open, free connection; None if there is none.

        If None, nothing was sent: use `call`.
        """
        ...

    async def in_a_row(self, key: bytes, *commands: Sequence[Argument]) -> list[Reply]:
        """Send commands about this key, in this order on one connection."""
        ...

    async def each(self, *command: Argument) -> dict[str, Reply]:
        """Send the command to every primary; the answers by the node's name."""
        ...

    async def scan(
        self, cursors: Cursors, match: str, count: int, kind: str
    ) -> tuple[list[bytes], Cursors]:
        """One scan step of about `count` keys on each primary: matching names, and the next
        cursors.

        A pass begins without cursors and has ended when none are returned.
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
    """A client for other programs' streams: its caller alone sets time-outs and retries."""
    if tls is None:
        return _client(_Tcp, connections, None, **_NO_RETRY, **settings)
    return _client(_Tls, connections, None, **_NO_RETRY, **settings, **tls)


def _client(
    kind: type[Connection | UnixDomainSocketConnection],
    connections: int,
    timeout: float | None,
    **settings: Any,
) -> Redis:
    """A redis-py client; `timeout` limits the wait for a free connection."""
    pool = BlockingConnectionPool(
        connection_class=kind, max_connections=connections, timeout=timeout, **settings
    )
    return Redis.from_pool(pool)


class _PacksInC:
    """Packs commands with hiredis: redis-py packs them in Python."""

    def pack_command(self, *args: EncodableT) -> list[bytes]:
        if isinstance(args[0], str) and " " in args[0]:
            args = (*args[0].split(), *args[1:])
        return [packed(args)]  # type: ignore[arg-type] # numbers are whole here


class _Tcp(_PacksInC, Connection):
    """A connection over TCP."""


class _Tls(_PacksInC, SSLConnection):
    """A connection over TLS."""


class _Unix(_PacksInC, UnixDomainSocketConnection):
    """A connection over a unix socket."""


async def _scan(
    nodes: Mapping[str, Callable[..., Awaitable[Reply]]], cursors: Cursors, how: Sequence[Argument]
) -> tuple[list[bytes], Cursors]:
    found: list[bytes] = []
    left: Cursors = {}
    for name, cursor in (cursors or dict.fromkeys(nodes, 0)).items():
        if name in nodes:
            reply = await heeding(nodes[name]("SCAN", cursor, *how))
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
        """Drop the connections: connecting again finds a new primary behind the same address."""
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
            await heeding(connection.send_packed_command(connection.pack_commands(commands)))
            replies = [await node.parse_response(connection, str(c[0])) for c in commands]
        except BaseException as exc:
            # Remaining answers would be taken for those of the next commands.
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
            node.name: await heeding(self._client.execute_command(*command, target_nodes=node))
            for node in nodes
        }

    async def scan(
        self, cursors: Cursors, match: str, count: int, kind: str
    ) -> tuple[list[bytes], Cursors]:
        await self._client.initialize()
        nodes = {str(node.name): node.execute_command for node in self._client.get_primaries()}
        return await _scan(nodes, cursors, ("MATCH", match, "COUNT", count, "TYPE", kind))

    def subscriber(self) -> tuple[PubSub, Redis]:
        """Subscribe on one node after the other: every node forwards all publications."""
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


# Connections for scripts

CLOSED = "the connection was closed as it was opened"
_MORE = object()


def packed(command: Sequence[Argument]) -> bytes:
    """The command as the bytes that are sent."""
    # hiredis takes a tuple of any length; its stub allows one element only.
    data: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    return data


def packed_beginning(command: Sequence[Argument]) -> bytes:
    """The first part of a command whose last four arguments follow as `packed_end`."""
    return b"*%d\r\n" % (len(command) + 4) + packed(command).partition(b"\r\n")[2]


def packed_end(one: bytes, two: bytes, three: bytes, four: bytes) -> bytes:
    """The last four arguments of a command."""
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(one),
        one,
        len(two),
        two,
        len(three),
        three,
        len(four),
        four,
    )


class Line(Protocol):
    """A connection of redis-py's, with the stream it has opened."""

    _writer: asyncio.StreamWriter | None

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...


class _Open(asyncio.Protocol):
    """An open connection, read here without redis-py's stream and time-outs.

    One timer per connection, not per call: it checks whether a call has waited too long.
    """

    def __init__(
        self,
        line: Line,
        transport: asyncio.WriteTransport,
        seconds: float,
        freed: Callable[[_Open], None],
    ) -> None:
        """`freed` is called with every answer, and once more when the connection is closed."""
        self._line = line
        self._transport = transport
        self._seconds = seconds
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._answers = hiredis.Reader(
            protocolError=vendor.InvalidResponse,
            replyError=BaseParser.parse_error,
            notEnoughData=_MORE,
        )
        self._waiting: asyncio.Future[Any] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        transport.set_protocol(self)

    def ask(self, command: bytes) -> asyncio.Future[Any] | None:
        """Send one command; its answer is a future. None if the connection is no longer usable.

        If the caller is cancelled, the line stays busy until the answer has come.
        """
        if self._transport.is_closing() or self._answers.has_data():  # an answer to no command
            return None
        self._transport.write(command)  # first, so that the server works during the rest
        waiting = self._waiting = self._loop.create_future()
        self._until = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)
        return waiting

    def data_received(self, data: bytes) -> None:
        self._answers.feed(data)
        try:
            answer = self._answers.gets()
        except vendor.RedisError as exc:
            self._fail(exc)
            return
        if answer is _MORE:
            return
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._transport.close()  # an answer to no command
            return
        self._freed(self)
        if waiting.done():  # the caller was cancelled
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or vendor.ConnectionError("the server has closed the connection"))

    def _look(self) -> None:
        """Time the call under way out if its limit has passed."""
        self._timer = None
        if self._waiting is None:
            return
        if self._loop.time() < self._until:  # the timer was set for an earlier call
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._fail(vendor.TimeoutError(f"no answer in {self._seconds:g} s"))

    @property
    def is_left(self) -> bool:
        """Whether the caller was cancelled before the answer came."""
        return self._waiting is not None and self._waiting.done()

    def _fail(self, exc: Exception) -> None:
        """Close the connection and fail the call under way."""
        self._transport.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._freed(self)
            if not waiting.done():
                waiting.set_exception(exc)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._line.disconnect(nowait=True)


_OF_A_WRITER = frozenset({"writelines", "drain"})
"""Methods of the stream writer that redis-py calls; the writer is None on a closed connection."""


async def heeding(asked: Awaitable[T]) -> T:
    """Await it, and raise a cancellation that redis-py swallowed while it connected.

    A write to a connection that another call has closed meanwhile becomes a ConnectionError: uvloop
    refuses it by a RuntimeError, redis-py by an AttributeError where it has already dropped its
    writer.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await asked
    except (RuntimeError, AttributeError) as exc:
        if not _writes_to_closed(exc):
            raise
        raise vendor.ConnectionError("another call has closed the connection") from exc
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


def _writes_to_closed(exc: RuntimeError | AttributeError) -> bool:
    if isinstance(exc, AttributeError):
        return exc.obj is None and exc.name in _OF_A_WRITER
    return "handler is closed" in str(exc)


class Lines:
    """A pool of open connections; the one freed last is used first."""

    def __init__(self, make: Callable[[], Line], *, most: int, seconds: float) -> None:
        self._make = make
        self._most = most
        self._seconds = seconds
        self._lines: set[_Open] = set()
        self._free: list[_Open] = []
        """Connections without a call under way; a failed one is detected when taken."""
        self._used = 0
        self._going: set[asyncio.Task[None]] = set()

    @property
    def has_one(self) -> bool:
        return self._used < self._most

    def ask(self, command: Sequence[Argument]) -> Awaitable[Any]:
        """Send a command; raises errors of the server and of the connection."""
        data = packed(command)
        answer = self.quick(data)
        if answer is not None:
            return answer
        self._used += 1  # before the await: many connections may be opened at once
        return self._ask_another(data)

    def quick(self, command: bytes) -> asyncio.Future[Any] | None:
        """Send a packed command over a free line; None, and nothing sent, if there is none."""
        if not self._free:
            return None
        answer = self._free[-1].ask(command)
        if answer is not None:
            self._free.pop()
            self._used += 1
        return answer

    async def _ask_another(self, command: bytes) -> Any:
        answer = None
        try:
            while answer is None and self._free:
                answer = await self._try(self._free.pop(), command)
            if answer is None:
                answer = await self._try(await self._open(), command)
            if answer is None:
                raise vendor.ConnectionError(CLOSED)
        finally:
            if answer is None:
                self._used -= 1
        return await answer

    async def _try(self, line: _Open, command: bytes) -> asyncio.Future[Any] | None:
        """Send over this line; close it if it cannot be used."""
        answer = line.ask(command)
        if answer is None:
            self._lines.discard(line)
            await line.close()
        return answer

    def _freed(self, line: _Open) -> None:
        self._used -= 1
        if line in self._lines:
            self._free.append(line)
        else:  # dropped while it was in use
            going = asyncio.get_running_loop().create_task(line.close())
            self._going.add(going)
            going.add_done_callback(self._going.discard)

    async def drop(self) -> None:
        """Close the free lines, and those in use as soon as they have their answer."""
        left = [line for line in self._lines if line.is_left]
        free, self._free = self._free, []
        self._lines.clear()
        for line in [*free, *left]:
            await line.close()

    async def _open(self) -> _Open:
        made = self._make()
        try:
            await heeding(made.connect())
        except BaseException:
            await made.disconnect(nowait=True)
            raise
        writer = made._writer  # noqa: SLF001 - what it is opened for
        if writer is None:
            raise vendor.ConnectionError(CLOSED)
        line = _Open(made, writer.transport, self._seconds, self._freed)
        self._lines.add(line)
        return line
