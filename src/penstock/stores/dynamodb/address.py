"""The store's URL: the table that holds the messages, and the Redis of the near future.

dynamodb+redis://[KEY:SECRET@]HOST:PORT/TABLE?redis=redis://host:6379/0    DynamoDB Local …
dynamodb+redis:///TABLE?region=eu-west-1&redis=rediss://host:6379/0        AWS itself
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.model.errors import ConfigError, InvalidMessage
from penstock.model.times import parse_duration
from penstock.ports.options import read_query
from penstock.redis_kit.address import Address as RedisAddress
from penstock.redis_kit.address import parse_address as parse_redis

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
LOCAL_REGION = "us-east-1"
"""The region for an endpoint other than AWS, which requires one and ignores it."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the URL's query."""

    redis: str = ""
    """Required. The near future's Redis: any URL of the Redis store, with & written as %26."""
    region: str | None = None
    """AWS region; default: that of the ordinary AWS settings."""
    tls: bool = False
    """Use https for a HOST; AWS itself always uses it."""
    near: str = "15m"
    """Messages due sooner than this have their ids in Redis."""
    shards: int = 64
    """Shards of every index partition; chosen when the table is created."""
    create: bool = False
    """Create the table if it does not exist."""
    forget: Literal["ttl", "exact"] = "ttl"
    """ttl: DynamoDB deletes settled messages, free of charge and some hours late. exact: Penstock
    deletes them too, to the second; until then their ids are in Redis."""
    partiql: Literal["auto", "yes", "no"] = "auto"
    """Write 25 items per call (BatchExecuteStatement) or one by one; auto: detect support."""
    timeout: str = "5s"
    """Time limit of a call, retries included."""
    connect_timeout: str = "2s"
    """Time limit of connecting."""
    max_connections: int = 32
    """Most calls of this process under way; fewer while answers are slow."""
    figures: str = "10s"
    """How long one full count serves all processes: counting costs reads."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed store URL."""

    name: str
    """The URL without secrets."""
    table: str
    endpoint: str | None
    """The endpoint; None for AWS itself."""
    region: str | None
    key: str | None = None
    secret: str | None = None
    redis: RedisAddress
    near: int
    """Milliseconds."""
    timeout: float
    connect_timeout: float
    figures: int
    """Milliseconds."""
    options: Options


def parse_address(url: str) -> Address:
    """URL → Address, or ConfigError that says what would be right."""
    parts = urlsplit(url)
    options = _options(parts.query)
    table = unquote(parts.path).strip("/")
    if _TABLE.fullmatch(table) is None:
        raise ConfigError(
            "store: dynamodb+redis:// needs a table of 3-255 letters, digits, _ . or -:"
            " dynamodb+redis://HOST:PORT/TABLE?redis=redis://host:6379/0"
        )
    credentials, _, host = parts.netloc.rpartition("@")
    key, _, secret = credentials.partition(":")
    if bool(key) != bool(secret):
        raise ConfigError("store: give both, KEY:SECRET@, or neither and use the AWS settings")
    redis = parse_redis(options.redis)
    return Address(
        name=f"dynamodb+redis://{host}/{table}",
        table=table,
        endpoint=f"{'https' if options.tls else 'http'}://{host}" if host else None,
        region=options.region or (LOCAL_REGION if host else None),
        key=unquote(key) or None,
        secret=unquote(secret) or None,
        redis=redis,
        near=_millis(options.near, "near"),
        timeout=_millis(options.timeout, "timeout") / 1000,
        connect_timeout=_millis(options.connect_timeout, "connect_timeout") / 1000,
        figures=_millis(options.figures, "figures"),
        options=options,
    )


def _options(query: str) -> Options:
    # A plus is a plus, as in redis+cluster:// and in passwords: no form wrote this query.
    options = read_query(Options, query.replace("+", "%2B"))
    if not options.redis.startswith(("redis", "unix")):
        raise ConfigError(
            "store: redis= must be the URL of a Redis: …/TABLE?redis=redis://host:6379/0"
        )
    if not 1 <= options.shards <= 1024 or options.max_connections < 1:
        raise ConfigError("store: shards must be 1-1024 and max_connections at least 1")
    return options


def _millis(text: str, field: str) -> int:
    try:
        return parse_duration(text, field)
    except InvalidMessage as exc:
        raise ConfigError(f"store: {exc.message}") from exc
