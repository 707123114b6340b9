"""Every driver by the scheme of its address; adding one is one line in these tables.

A driver is imported when its scheme is first named, so one whose extra is not installed costs
nothing until then. Only wiring asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlsplit

from penstock.model.errors import ConfigError, missing_extra
from penstock.ports.store import StoreDriver

STORES = {
    # scheme: (module with `DRIVER: penstock.ports.store.StoreDriver`, extra)
    "memory": ("penstock.stores.memory", None),
    "sqlite": ("penstock.stores.sqlite", None),
    "redis": ("penstock.stores.redis", "redis"),
    "rediss": ("penstock.stores.redis", "redis"),
    "redis+cluster": ("penstock.stores.redis", "redis"),
    "rediss+cluster": ("penstock.stores.redis", "redis"),
    "redis+unix": ("penstock.stores.redis", "redis"),
    "unix": ("penstock.stores.redis", "redis"),
    "postgresql": ("penstock.stores.postgres", "postgres"),
    "postgres": ("penstock.stores.postgres", "postgres"),
    "dynamodb+redis": ("penstock.stores.dynamodb", "dynamodb"),
}
SINKS = {
    # scheme: (module with `async def open_sink(url, options: SinkOptions) -> Sink`, extra)
    "log": ("penstock.sinks.log", None),
    "http": ("penstock.sinks.webhook", None),
    "https": ("penstock.sinks.webhook", None),
    "python": ("penstock.sinks.python", None),
    "kafka": ("penstock.sinks.kafka", "kafka"),
    "rabbitmq": ("penstock.sinks.rabbitmq", "rabbitmq"),
    "amqp": ("penstock.sinks.rabbitmq", "rabbitmq"),
    "amqps": ("penstock.sinks.rabbitmq", "rabbitmq"),
    "nats": ("penstock.sinks.nats", "nats"),
    "tls": ("penstock.sinks.nats", "nats"),
    "redis": ("penstock.sinks.redis_streams", "redis"),
    "rediss": ("penstock.sinks.redis_streams", "redis"),
}
SOURCES = {
    # scheme: (module with `async def open_source(url, options: SourceOptions) -> Source`, extra)
    "kafka": ("penstock.sources.kafka", "kafka"),
    "rabbitmq": ("penstock.sources.rabbitmq", "rabbitmq"),
    "amqp": ("penstock.sources.rabbitmq", "rabbitmq"),
    "amqps": ("penstock.sources.rabbitmq", "rabbitmq"),
    "nats": ("penstock.sources.nats", "nats"),
    "tls": ("penstock.sources.nats", "nats"),
}

_WITH_DATABASE = STORES.keys() - {"memory", "sqlite", "redis+unix", "unix"}
"""Schemes of stores whose path is a database: its name has no @."""


def store_driver(url: str) -> StoreDriver:
    """The driver of the store at this address."""
    driver: StoreDriver = driver_of(STORES, url, "store").DRIVER
    return driver


def driver_of(table: Mapping[str, tuple[str, str | None]], url: str, field: str) -> Any:
    """The module that this address is for; ConfigError names the field and the missing extra."""
    try:
        parts = urlsplit(url)
        scheme = parts.scheme
    except ValueError as exc:  # its text never has the address
        raise ConfigError(f"{field}: this is no address: {exc}") from None
    if scheme not in table:
        known = ", ".join(sorted(table))
        found = f"no driver for {scheme!r}" if scheme else "the address has no scheme"
        raise ConfigError(f"{field}: {found}; known schemes: {known}")
    if _has_split_login(
        parts, with_database=table is STORES and scheme in _WITH_DATABASE
    ):  # its pieces would be quoted by errors, and shown in logs
        raise ConfigError(
            f"{field}: the user or password in this address has a '/', '?' or '#':"
            " write %2F, %3F or %23 (and %40 for '@')"
        )
    module, extra = table[scheme]
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        if extra is None or (exc.name or "").startswith("penstock."):
            raise
        raise missing_extra(f"{field}: {scheme}://", extra) from exc


def _has_split_login(parts: SplitResult, *, with_database: bool) -> bool:
    """True if a `/`, `?` or `#` in the password has probably ended the host part too early."""
    rest = parts.path + parts.query + parts.fragment
    if "@" in parts.netloc or "@" not in rest or not parts.netloc:
        return False
    if with_database and "@" in parts.path + parts.fragment:
        return True
    return any(
        not port.isdecimal()
        for host in parts.netloc.split(",")
        if (port := host.rpartition("]")[2].partition(":")[2])
    )
