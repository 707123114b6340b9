"""The store's URL: the table that is the truth, and the Redis that holds the near future.

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
"""Of an endpoint that is not AWS, which asks for one and does not care."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may follow the `?`."""

    redis: str = ""
    """Needed. The near future's Redis: any URL of the Redis store, `&` in it written as %26."""
    region: str | None = None
    """AWS region; without one: what the ordinary AWS settings say."""
    tls: bool = False
    """Whether a HOST is spoken to by https; AWS itself always is."""
    near: str = "15m"
    """What is due sooner than this is held in Redis."""
    shards: int = 64
    """Pieces of every index entry's partition; chosen when the table is made."""
    create: bool = False
    """Make the table when it is not there."""
    forget: Literal["ttl", "exact"] = "ttl"
    """ttl: settled messages are deleted by DynamoDB, free of charge and some hours late.
    exact: also by Penstock, to the second; their ids are in Redis until then."""
    partiql: Literal["auto", "yes", "no"] = "auto"
    """Whether writes go 25 a call (BatchExecuteStatement) or one by one; auto: look."""
    timeout: str = "5s"
    """How long a call may take, with its repetitions."""
    connect_timeout: str = "2s"
    """How long connecting may take."""
    max_connections: int = 32
    """Calls of this process under way at most."""
    figures: str = "10s"
    """How long a count of everything serves all processes: counting costs reads."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, taken apart."""

    name: str
    """Without secrets."""
    table: str
    endpoint: str | None
    """None: AWS itself."""
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
