"""Request checks: tokens and scopes, the same origin for browsers, and no rebound host names.

One Guard serves both ways in. All its checks take raw header values and raise.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from penstock.api.access import Tokens, is_loopback, split_host_port
from penstock.api.grants import Grant, Scope
from penstock.api.http.errors import UnsupportedType
from penstock.model.errors import Forbidden, Malformed
from penstock.settings import ApiSettings

Headers = Iterable[tuple[bytes, bytes]]

JSON_TYPES = frozenset({b"application/json"})
PATCH_TYPES = JSON_TYPES | {b"application/merge-patch+json"}
NDJSON_TYPES = frozenset(
    {
        b"application/x-ndjson",
        b"application/ndjson",
        b"application/jsonl",
        b"application/x-jsonlines",
    }
)
_ONCE = frozenset({b"host", b"authorization", b"content-type"})
_HOST = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Guard:
    """Decides from the headers alone."""

    def __init__(self, api: ApiSettings, *, insecure: bool = False) -> None:
        self._tokens = Tokens(api)
        self._tokens.check_bind("api.http", api.http, insecure=insecure)
        host = split_host_port(api.http)[0].lower()
        # A page on a name that was rebound to 127.0.0.1 is "same origin" for a browser: without
        # tokens only the Host header gives it away. --insecure on an open bind asks for less.
        self._check_names = not self._tokens and is_loopback(host)
        self._names = {"localhost", host, *(name.lower() for name in api.hosts)}
        self._known_hosts: dict[bytes, None] = {}

    def warn(self) -> None:
        """Log settings that work and should not stay as they are."""
        self._tokens.warn()

    @property
    def needs_token(self) -> bool:
        return bool(self._tokens)

    def check_host(self, host: bytes | None, http_version: str = "1.1") -> None:
        """Refuse a request whose Host header is not one of ours."""
        if host is None:
            if http_version != "1.0":
                raise Malformed("the Host header is missing")
            return
        if host in self._known_hosts:
            return
        if _HOST.fullmatch(host) is None:
            raise Malformed("the Host header is not a host name or address")
        if self._check_names:
            self._check_name(_host_name(host))
        if len(self._known_hosts) < 64:  # a client sends the same header every time
            self._known_hosts[host] = None

    def _check_name(self, name: str) -> None:
        if name in self._names or name.endswith(".localhost") or _is_address(name):
            return
        raise Forbidden(
            f"this server is not {name[:100]!r}: without tokens it answers only to localhost,"
            " to IP addresses and to the names in api.hosts"
        )

    def check_token(self, authorization: bytes | None, needed: Scope) -> Grant:
        """The grant of the token in this header; refuse one that does not cover `needed`."""
        return self._tokens.check(authorization, needed)

    def grant(self, authorization: bytes | None) -> Grant:
        """The grant of the token in this header; NOBODY's for an unknown token."""
        return self._tokens.grant(authorization)

    @staticmethod
    def check_origin(origin: bytes | None, host: bytes | None) -> None:
        """Refuse a write that a page of another origin made."""
        if origin is None:
            return
        came_from = _authority(origin, b"")
        if came_from is None or came_from != _authority(b"//" + (host or b""), origin):
            raise Forbidden("a page of another origin may not write here")

    @staticmethod
    def may_lack_type(content_type: bytes | None, origin: bytes | None) -> bool:
        """True if a body without a content type comes from a program: a page's POST names its
        origin.
        """
        return content_type is None and origin is None

    @staticmethod
    def check_type(content_type: bytes | None, allowed: frozenset[bytes] = JSON_TYPES) -> bytes:
        """The bare content type, or UnsupportedType."""
        if content_type in allowed:
            return content_type
        bare = (content_type or b"").partition(b";")[0].strip().lower()
        if bare not in allowed:
            listed = " or ".join(sorted(kind.decode() for kind in allowed))
            raise UnsupportedType(f"the content type must be {listed}")
        return bare


def check_once(headers: Headers) -> None:
    """Malformed when a header that decides something is there twice: a proxy may read the other."""
    found = [name for name, _ in headers if name in _ONCE]
    if len(found) != len(set(found)):
        twice = next(name for name in found if found.count(name) > 1)
        raise Malformed(f"the {twice.decode('latin-1').title()} header is there more than once")


def header(headers: Headers, name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: bytes) -> str:
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _authority(url: bytes, scheme_of: bytes) -> tuple[str, int | None] | None:
    """Host and port of a URL, the default port filled in; None when it is not one."""
    try:
        parts = urlsplit(url.decode("latin-1"))
        scheme = parts.scheme or urlsplit(scheme_of.decode("latin-1")).scheme
        port = parts.port or _DEFAULT_PORTS.get(scheme)
    except ValueError:
        return None
    return None if not parts.hostname else (parts.hostname, port)
