"""nats://user:password@host:port,host:port/subject (tls://) → a connection, by nats-py.

A broken connection is not repaired but replaced: nats-py would otherwise buffer publications and
send them later, long after their messages were given up and retried.
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
"""Seconds for which a created stream recognises repeated ids: the server's own default."""
WATCH = 0.05
"""Seconds between checks whether the connection is still open."""
TROUBLE = (nats.errors.Error, APIError, OSError, ValueError)
"""Errors of nats-py when the server is unreachable or at fault."""
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class NatsOptions(LoginOptions, frozen=True, kw_only=True):
    """Options common to NATS sinks and sources."""

    creds: str | None = None
    """File of credentials (JWT and seed)."""
    create_topic: bool = False
    """Create a stream for the subject if no stream covers it."""
    stream: str | None = None
    """The name of a created stream; unset: the subject with _ for its dots."""
    retention: Literal["limits", "workqueue", "interest"] = "limits"
    """Retention of a created stream. limits: records stay until max_age or max_bytes removes them,
    read or not. workqueue: a record is removed when its one consumer has acknowledged it. interest:
    when every consumer that existed on its arrival has acknowledged it."""
    max_age: float | str = "7d"
    """Age at which a created stream removes records, read or not; 0 keeps them."""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Most bytes in a created stream; unset: as the server allows."""
    discard: Literal["new", "old"] = "new"
    """Behaviour of a full created stream. new: it refuses new records, and publishers retry. old:
    it removes its oldest records, read or not."""


def is_subject(text: str) -> bool:
    """Whether the text is one subject, without wildcards."""
    return len(text) <= 1000 and _SUBJECT.fullmatch(text) is not None


def is_reserved(subject: str) -> bool:
    """Whether the subject is the server's own: a command, or a reply to a request."""
    return subject.startswith(("$JS.", "$SYS.", "$NRG.", "$JSC.", "_INBOX."))


def nats_address(url: str, wrong: Wrong) -> tuple[Address, str]:
    """The address and the subject."""
    address = parse_address(url, PORT, wrong)
    if len(address.path) != 1 or not is_subject(address.path[0]):
        raise wrong(f"must be {address.scheme}://host:port[,host:port]/subject")
    return address, address.path[0]


def name_of(text: str) -> str:
    """The name of a stream or consumer for a subject: such names have no dots."""
    return _NOT_A_NAME.sub("_", text)


class SecureClient(Client):
    """Sends credentials over TLS only; nats-py would do so only if the server insisted."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise nats.errors.Error("TLS is asked for, and the server does not offer it")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


async def connect(address: Address, options: NatsOptions, wrong: Wrong) -> Client:
    """Connect to the first host that answers; raises the last host's error if none does."""
    user, password = address.login(options)
    last: Exception | None = None

    async def trouble(exc: Exception) -> None:
        """Keep nats-py from logging errors: Penstock reports them itself."""
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
            await hang_up(client)  # a half-open connection must not remain
            if not isinstance(exc, TROUBLE):  # a TimeoutError is an OSError, and one of these
                raise
            last = _cause(client, heard[-1] if heard else exc)  # more specific than "no servers"
        else:
            return client
    raise last if last is not None else OSError("no host to connect to")


def _cause(client: Client, exc: Exception) -> Exception:
    """A clearer error: nats-py may report a refused login as a broken connection."""
    greeted = bool(client._server_info)  # noqa: SLF001 - nothing public says so
    if isinstance(exc, ConnectionError) and greeted:
        return ConnectionError(f"{exc}, after the greeting: as for a wrong authorization")
    return exc


def stream_config(subject: str, options: NatsOptions, wrong: Wrong) -> StreamConfig:
    """The configuration of a stream for the subject; ConfigError names a wrong option."""
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
    """Create a stream for the subject; an existing one is left unchanged."""
    try:
        for subject in config.subjects or ():
            await js.find_stream_name_by_subject(subject)
    except NotFoundError:
        await js.add_stream(config)


async def while_connected(client: Client, awaited: Awaitable[object]) -> bool:
    """Await it; False as soon as the connection is lost, which nats-py may report late or never."""
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
    """Close, without waiting long for a server that may be gone."""
    transport = client._transport  # noqa: SLF001 - closing a broken connection may leave it open
    try:
        async with asyncio.timeout(CLOSING):
            await client.close()
    except (*TROUBLE, TimeoutError):
        return  # the connection is closed either way
    finally:
        if transport is not None:
            transport.close()  # type: ignore[no-untyped-call] # nats-py has no types here


def trouble_text(exc: BaseException) -> str:
    silent = "no answer in time" if isinstance(exc, TimeoutError) else type(exc).__name__
    return str(exc) or silent
