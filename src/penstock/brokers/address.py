"""Parses scheme://user:password@host:port,host:port/path; no part shows a secret."""

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
"""Schemes that imply TLS."""


class LoginOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials and trusted certificates; a URL's own user and password win."""

    username: str | None = None
    """User name; in NATS a user without a password is a token."""
    password: str | None = None
    """Password; better set in the environment than in a file."""
    tls: bool = False
    """Use TLS; implied by a TLS scheme and by any certificate file below."""
    tls_ca: str | None = None
    """File of certificates to trust; unset: the system's."""
    tls_cert: str | None = None
    """File of the client certificate, if the broker requires one."""
    tls_key: str | None = None
    """File of the certificate's key."""
    tls_verify: bool = True
    """False: accept any certificate. For tests."""

    def __repr__(self) -> str:
        return type(self).__name__  # never show the password

    @property
    def wants_tls(self) -> bool:
        """Whether to use TLS; naming a certificate implies it."""
        return self.tls or self.tls_ca is not None or self.tls_cert is not None

    def context(self, wrong: Wrong) -> ssl.SSLContext:
        context = client_context(wrong, self.tls_ca, self.tls_cert, self.tls_key)
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Address:
    """The parsed address of a broker."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    path: tuple[str, ...]
    """Path segments, unquoted."""
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
        """The TLS context; None without TLS. Unreadable files are an error."""
        return options.context(wrong) if self.scheme in _TLS or options.wants_tls else None

    def scrubber(self, options: LoginOptions) -> Scrubber:
        given = (self.password, options.password)
        return Scrubber(word for word in given if word is not None)


def parse_address(url: str, port: int, wrong: Wrong) -> Address:
    """Parse an address, or raise ConfigError; its text never repeats the URL's secrets."""
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
