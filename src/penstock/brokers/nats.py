"""nats://user:password@host:port,host:port/subject (tls://) → a connection, by nats-py.

A connection that broke is not mended but replaced: nats-py would otherwise keep what was
published meanwhile and send it later, when its message has long been given up and tried again.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable
from typing import Annotated, Any, Literal

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import APIError, NotFoundError

from penstock.brokers.address import Address, LoginOptions, Wrong, parse_address
from penstock.model.errors import InvalidMessage
from penstock.model.times import parse_duration

PORT = 4222
PING = 10
CLOSING = 2.0
DUPLICATES = 120.0
"""Seconds a stream made here knows the ids of what was published: the server's own default."""
WATCH = 0.05
"""Seconds between looks whether the connection still is one."""
TROUBLE = (nats.errors.Error, APIError, OSError, ValueError)
"""What nats-py raises when the other side is not there or not in order."""
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class NatsOptions(LoginOptions, frozen=True, kw_only=True):
    """What a NATS sink and a NATS source share."""

    creds: str | None = None
    """File of credentials (JWT and seed)."""
    create_topic: bool = False
    """Make a stream for the subject when none takes it."""
    stream: str | None = None
    """The name of a stream made here; unset: the subject with _ for its dots."""
    retention: Literal["limits", "workqueue", "interest"] = "limits"
    """Of a stream made here. limits: records stay until max_age or max_bytes ends them, read or
    not. workqueue: a record goes when its one consumer has acknowledged it. interest: when all have
    that were there when it came."""
    max_age: float | str = "7d"
    """Of a stream made here: records older than this are removed, read or not; 0 keeps them."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Of a stream made here: bytes it holds at most; unset: as the server allows."""
    discard: Literal["new", "old"] = "new"
    """Of a stream made here that is full. new: it refuses what comes, and publishers try again.
    old: its oldest records go, read or not."""


def is_subject(text: str) -> bool:
    """One subject, without wildcards."""
    return len(text) <= 1000 and _SUBJECT.fullmatch(text) is not None


def is_reserved(subject: str) -> bool:
    """The server's own: what is published there is a command or somebody's answer."""
    return subject.startswith(("$JS.", "$SYS.", "$NRG.", "$JSC.", "_INBOX."))


def nats_address(url: str, wrong: Wrong) -> tuple[Address, str]:
    """The address and the subject."""
    address = parse_address(url, PORT, wrong)
    if len(address.path) != 1 or not is_subject(address.path[0]):
        raise wrong(f"must be {address.scheme}://host:port[,host:port]/subject")
    return address, address.path[0]


def name_of(text: str) -> str:
    """A stream's or consumer's name for it: those have no dots."""
    return _NOT_A_NAME.sub("_", text)


class SecureClient(Client):
    """Says nothing in the clear, as nats-py would to a server that does not insist on TLS."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise nats.errors.Error("TLS is asked for, and the server does not offer it")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


async def connect(address: Address, options: NatsOptions, wrong: Wrong) -> Client:
    """To the first host that answers; the last one's error when none does."""
    user, password = address.login(options)
    last: Exception | None = None

    async def trouble(exc: Exception) -> None:
        """nats-py would log it; what it means for us we say ourselves."""
        heard.append(exc)

    heard: deque[Exception] = deque(maxlen=1)
    context = address.context(options, wrong)
    for server in address.servers:
        client = Client() if context is None else SecureClient()
        try:
            await client.connect(
                f"nats://{server}",
                name="penstock",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=5,
                ping_interval=PING,
                flush_timeout=1.0,  # or closing a broken connection may wait for itself
                error_cb=trouble,
                tls=context,
                user=user if password is not None else None,
                password=password,
                token=user if password is None else None,
                user_credentials=options.creds,
            )
        except BaseException as exc:
            await hang_up(client)  # what was half open must not stay so
            if not isinstance(exc, TROUBLE):  # a TimeoutError is an OSError, and one of these
                raise
            last = _cause(client, heard[-1] if heard else exc)  # not just "no servers"
        else:
            return client
    raise last if last is not None else OSError("no host to connect to")


def _cause(client: Client, exc: Exception) -> Exception:
    """A refused login may look like a broken line: nats-py writes on before it reads the answer."""
    greeted = bool(client._server_info)  # noqa: SLF001 - nothing public says so
    if isinstance(exc, ConnectionError) and greeted:
        return ConnectionError(f"{exc}, after the greeting: as for a wrong authorization")
    return exc


def stream_config(subject: str, options: NatsOptions, wrong: Wrong) -> StreamConfig:
    """A stream for the subject as the options describe it; ConfigError names what is wrong."""
    try:
        max_age = parse_duration(options.max_age, "max_age") / 1000
    except InvalidMessage as exc:
        raise wrong(exc.reason, "max_age") from exc
    return StreamConfig(
        name=options.stream or name_of(subject),
        subjects=[subject],
        retention=RetentionPolicy(options.retention),
        max_age=max_age,
        max_bytes=options.max_bytes,
        discard=DiscardPolicy(options.discard),
        duplicate_window=min(DUPLICATES, max_age) if max_age else DUPLICATES,
    )


async def make_stream(js: JetStreamContext, config: StreamConfig) -> None:
    """A stream that takes the subject, unless there is one: that one is left as it is."""
    try:
        for subject in config.subjects or ():
            await js.find_stream_name_by_subject(subject)
    except NotFoundError:
        await js.add_stream(config)


async def while_connected(client: Client, awaited: Awaitable[object]) -> bool:
    """Await it; False as soon as the connection is lost, which nats-py may tell late or never."""
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait({task}, timeout=WATCH))[0]:
            if not client.is_connected:
                return False
    finally:
        if not task.done():
            task.cancel()
    task.result()
    return True


async def hang_up(client: Client) -> None:
    """Close, but never wait long for a side that may be gone."""
    transport = client._transport  # noqa: SLF001 - closing a broken connection may leave it open
    try:
        async with asyncio.timeout(CLOSING):
            await client.close()
    except (*TROUBLE, TimeoutError):
        return  # it is closed either way
    finally:
        if transport is not None:
            transport.close()  # type: ignore[no-untyped-call] # nats-py has no types here


def trouble_text(exc: BaseException) -> str:
    silent = "no answer in time" if isinstance(exc, TimeoutError) else type(exc).__name__
    return str(exc) or silent
