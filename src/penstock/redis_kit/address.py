"""The store's URL: the address of Redis, and the settings that come with it.

redis://[user:password@]host[:port][/db]      rediss:// the same over TLS
unix:///path/to/socket?db=0                   redis+unix:// the same
redis+cluster://[user:password@]host:port,host:port…      rediss+cluster:// over TLS
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from penstock.model.errors import ConfigError
from penstock.model.errors import InvalidMessage as BadDuration
from penstock.model.times import parse_duration
from penstock.ports.options import read_query

PORT = 6379
PREFIX = "penstock"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the URL's query."""

    prefix: str = PREFIX
    """Prefix of every key's name: two stores with different prefixes can share a server."""
    db: int | None = None
    """Database of a unix socket; otherwise the URL's path."""
    timeout: str = "3s"
    """Time limit of an answer."""
    connect_timeout: str = "2s"
    """Time limit of connecting."""
    max_connections: int = 32
    """Most connections of this process to one server."""
    bucket_size_sec: int | None = None
    """Granularity of the far future's index; overrides the [worker] setting."""
    wait_replicas: int = 0
    """A write is acknowledged only when this many replicas have it (WAIT)."""
    waitaof: int = 0
    """1: acknowledged only when it is fsynced to the server's AOF (WAITAOF, Redis 7.2)."""
    wait_ms: int = 1000
    """Time limit of WAIT and WAITAOF."""
    key_index: bool | None = None
    """True: keep an index for search by key. False: drop it. Unset: as the store has it."""
    ssl_ca_certs: str | None = None
    """File of trusted authorities; default: the system's."""
    ssl_certfile: str | None = None
    """File of the client certificate."""
    ssl_keyfile: str | None = None
    """File of the client certificate's key."""
    ssl_check_hostname: bool = True
    """Whether the certificate must name the host."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed store URL."""

    name: str
    """The URL without secrets; with the prefix if it is not the default."""
    hosts: tuple[tuple[str, int], ...] = ()
    socket: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    cluster: bool = False
    timeout: float
    connect_timeout: float
    options: Options

    @property
    def prefix(self) -> str:
        return self.options.prefix


def parse_address(url: str) -> Address:
    """URL → Address, or ConfigError that says what would be right."""
    parts = urlsplit(url)
    options = _options(parts.query)
    _check_files(options, tls=parts.scheme.startswith("rediss"))
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    path = unquote(parts.path)
    try:
        timeout = parse_duration(options.timeout, "timeout") / 1000
        connect_timeout = parse_duration(options.connect_timeout, "connect_timeout") / 1000
    except BadDuration as exc:
        raise ConfigError(f"store: {exc.message}") from exc
    common = {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "timeout": timeout,
        "connect_timeout": connect_timeout,
        "options": options,
    }
    scheme = parts.scheme
    own_keys = "" if options.prefix == PREFIX else f"?prefix={quote(options.prefix)}"
    if scheme in ("unix", "redis+unix"):
        if not path.strip("/"):
            raise ConfigError("store: unix:// needs the socket's path: unix:///run/redis.sock")
        return msgspec.convert(
            {
                **common,
                "name": f"{scheme}://{path}{own_keys}",
                "socket": path,
                "db": options.db or 0,
            },
            Address,
        )
    cluster = scheme.endswith("+cluster")
    if options.db is not None:
        raise ConfigError("store: give the database as the URL's path: redis://host:6379/2")
    database = path.strip("/")
    if database and cluster:
        raise ConfigError("store: a cluster has no databases: redis+cluster://host:6379")
    if database and not (database.isascii() and database.isdigit()):
        wrong = (
            f"the database {database!r} is not a number" if hosts else "a host needs two slashes"
        )
        raise ConfigError(f"store: {wrong}: redis://host:6379/0")
    found = tuple(_host(host) for host in (hosts or "localhost").split(","))
    if len(found) > 1 and not cluster:
        raise ConfigError("store: several hosts are for redis+cluster://")
    shown = ",".join(f"{host}:{port}" for host, port in found)
    return msgspec.convert(
        {
            **common,
            "name": f"{scheme}://{shown}{database and '/'}{database}{own_keys}",
            "hosts": found,
            "db": int(database or 0),
            "tls": scheme.startswith("rediss"),
            "cluster": cluster,
        },
        Address,
    )


def _host(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, str(PORT)
    if not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise ConfigError(f"store: {text!r} is not host:port")
    return host.strip("[]"), int(port)


def _options(query: str) -> Options:
    options = read_query(Options, query)
    if not options.prefix or not options.prefix.isprintable() or "{" in options.prefix:
        raise ConfigError("store: prefix must be printable and without '{'")
    if (options.bucket_size_sec is not None and options.bucket_size_sec < 1) or (
        options.max_connections < 1
    ):
        raise ConfigError("store: bucket_size_sec and max_connections must be at least 1")
    return options


def _check_files(options: Options, *, tls: bool) -> None:
    """Check that the files named for TLS exist and that their options fit together."""
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        file: str | None = getattr(options, name)
        if file is None:
            continue
        if not tls:
            raise ConfigError(f"store: {name} is for TLS: rediss://")
        if not Path(file).is_file():
            raise ConfigError(f"store: {name}: there is no file {file!r}")
