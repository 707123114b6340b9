"""scheme://user:password@host:port,host:port/path → parts, none of which shows a secret."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.model.answers import Scrubber
from penstock.model.errors import ConfigError
from penstock.tls import client_context

Wrong = Callable[..., ConfigError]
"""Makes the error that names the setting: wrong(reason, setting)."""

_TLS = frozenset({"amqps", "rediss", "tls"})
"""Schemes that say it."""


class LoginOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are and whom we trust; a URL's own user and password win."""

    username: str | None = None
    """Who we are; in NATS a user without a password is a token."""
    password: str | None = None
    """Better from the environment than in a file."""
    tls: bool = False
    """Speak TLS; a scheme that says so, or a file named below, needs no more."""
    tls_ca: str | None = None
    """File of certificates to trust; unset: the system's."""
    tls_cert: str | None = None
    """File of our own certificate, where the other side wants one."""
    tls_key: str | None = None
    """File of its key."""
    tls_verify: bool = True
    """False: believe any certificate. For tests."""

    def __repr__(self) -> str:
        return type(self).__name__  # never the password

    @property
    def wants_tls(self) -> bool:
        """Whoever names certificates means TLS."""
        return self.tls or self.tls_ca is not None or self.tls_cert is not None

    def context(self, wrong: Wrong) -> ssl.SSLContext:
        context = client_context(wrong, self.tls_ca, self.tls_cert, self.tls_key)
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address, taken apart."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    path: tuple[str, ...]
    """Segments, unquoted."""
    query: str = field(repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def servers(self) -> list[str]:
        return [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        ]

    @property
    def shown(self) -> str:
        """The address without user, password and query."""
        return f"{self.scheme}://{','.join(self.servers)}/{'/'.join(self.path)}"

    def login(self, options: LoginOptions) -> tuple[str | None, str | None]:
        if self.username is None and self.password is None:
            return options.username, options.password
        return self.username, self.password

    def context(self, options: LoginOptions, wrong: Wrong) -> ssl.SSLContext | None:
        """How TLS is spoken there; None: it is not. Files that cannot be read are an error."""
        return options.context(wrong) if self.scheme in _TLS or options.wants_tls else None

    def scrubber(self, options: LoginOptions) -> Scrubber:
        given = (self.password, options.password)
        return Scrubber(word for word in given if word is not None)


def parse_address(url: str, port: int, wrong: Wrong) -> Address:
    """ConfigError when it is not an address; its text never repeats the URL's secrets."""
    parts = urlsplit(url)
    login, _, netloc = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    hosts = tuple(_host(text, port, wrong) for text in netloc.split(","))
    if any(character.isspace() for character in url) or not all(host for host, _ in hosts):
        raise wrong(f"must be {parts.scheme}://host:port/…")
    return Address(
        scheme=parts.scheme,
        hosts=hosts,
        path=tuple(unquote(segment) for segment in parts.path.split("/") if segment),
        query=parts.query,
        username=unquote(user) if user else None,
        password=unquote(password) if colon else None,
    )


def _host(text: str, default: int, wrong: Wrong) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not port:
        return host, default
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise wrong(f"{port[:20]!r} is not a port")
    return host, int(port)
