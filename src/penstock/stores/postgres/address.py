"""A postgresql:// URL, parsed once; options that are not ours are passed to libpq."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from penstock.model.errors import ConfigError

DEFAULT_SCHEMA = "penstock"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
"""Short enough that the names of channels and partitions made from it are valid."""
_OWN = {"schema", "connections", "listen"}
_MOST_CONNECTIONS = 64
_PATIENCE = {
    # Detect a server that is gone: by connecting, or by an answer that does not arrive.
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "penstock",
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the database, our schema in it, and the number of connections."""

    conninfo: str = field(repr=False)
    """The connection string for libpq, with the password: never shown."""
    name: str
    """The address without user and password, for errors and health."""
    schema: str = DEFAULT_SCHEMA
    connections: int = 4
    """Transactions at a time. Half as many for claims and deliveries, one for counters and one that
    listens are additional.
    """
    listen: str | None = None
    """Where to listen for wake-ups past a pooler, in libpq's form. None: the same address."""

    @property
    def for_listening(self) -> str:
        return self.listen or self.conninfo


def parse_address(url: str) -> Address:
    """postgresql://user@host,host/db?sslmode=…&schema=…&connections=…&listen=host:port"""
    parts = urlsplit(url)
    who, at, where = parts.netloc.rpartition("@")
    who = who.replace("@", "%40")  # libpq would end the password at the first one
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = dict(pair for pair in options if pair[0] in _OWN)
    rest = urlencode([pair for pair in options if pair[0] not in own], quote_via=quote)
    schema = own.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            "store: schema must be lower-case letters, digits and _ (at most 48, not pg_…)"
        )
    _check_known(pair[0] for pair in options)
    try:
        given = conninfo_to_dict(f"postgresql://{who}{at}{where}{parts.path}?{rest}")
        conninfo = make_conninfo("", **{**_PATIENCE, **given})
        listens_at = _other_place(conninfo, own.get("listen"))
    except psycopg.Error:
        # libpq's text may repeat the address, and with it the password.
        raise ConfigError("store: libpq cannot read this address: check its parameters") from None
    name = _name(given, schema)
    return Address(conninfo, name, schema, _connections(own), listens_at)


def _check_known(names: Iterable[str]) -> None:
    """Raise ConfigError for an option that is neither ours nor libpq's."""
    of_libpq = {option.keyword.decode() for option in Conninfo.get_defaults()}
    of_libpq.add("ssl")  # an address may say ssl=true for sslmode=require
    for name in names:
        if name not in _OWN | of_libpq:
            close = get_close_matches(name, _OWN | of_libpq, n=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise ConfigError(
                f"store: no option {name[:100]!r}{hint} There are {', '.join(sorted(_OWN))}, and"
                " those of libpq, such as sslmode and target_session_attrs"
            )


def _other_place(conninfo: str, place: str | None) -> str | None:
    if place is None:
        return None
    there = conninfo_to_dict(f"postgresql://{place}")
    ports = str(there.get("port") or "5432").split(",")
    if set(there) - {"host", "port"} or not all(port.isdecimal() for port in ports):
        raise ConfigError("store: listen must be host:port, or several with commas")
    return make_conninfo(conninfo, **{"port": "5432", **there})


def _connections(own: dict[str, str]) -> int:
    text = own.get("connections", "4")
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_CONNECTIONS:
        raise ConfigError(f"store: connections must be 1 to {_MOST_CONNECTIONS}")
    return int(text)


def _name(given: Mapping[str, object], schema: str) -> str:
    if "service" in given and "host" not in given:
        place = f"service={given['service']}"
    else:
        hosts = str(given.get("host") or "localhost").split(",")
        ports = str(given.get("port") or "5432").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        place = ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))
    database = given.get("dbname") or ""
    return f"postgresql://{place}/{database}?schema={schema}"


def with_schema(url: str, schema: str) -> str:
    """The same server and settings, another schema."""
    parts = urlsplit(url)
    options = [
        pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "schema"
    ]
    query = urlencode([*options, ("schema", schema)], quote_via=quote)
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"
