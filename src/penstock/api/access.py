"""Who may call, on every API alike: tokens with scopes, and no open bind without them."""

from __future__ import annotations

import errno
import hashlib
import hmac
import ipaddress
from enum import IntEnum

from penstock.model.errors import ConfigError, Forbidden, Unauthorized
from penstock.settings import ApiSettings


class Scope(IntEnum):
    """What a token covers; each includes those before it."""

    OPEN = 0  # no token needed: health and static pages
    READ = 1
    WRITE = 2
    ADMIN = 3


class Tokens:
    """The tokens of the settings; without any, everybody may do everything."""

    def __init__(self, api: ApiSettings) -> None:
        self._known = [
            (_digest(token.secret.get_secret_value().encode()), Scope[token.scope.upper()])
            for token in api.tokens
        ]
        if any(not token.secret.get_secret_value().strip() for token in api.tokens):
            raise ConfigError("api.tokens: a secret must not be empty")

    def __bool__(self) -> bool:
        return bool(self._known)

    def check(self, authorization: bytes | None, needed: Scope) -> None:
        """Refuse without a token that covers `needed`."""
        if not self._known or needed is Scope.OPEN:
            return
        kind, _, given = (authorization or b"").strip().partition(b" ")
        if kind.lower() != b"bearer":
            raise Unauthorized("send a token: Authorization: Bearer …")
        digest = _digest(given.strip())
        held = Scope.OPEN
        for known, scope in self._known:  # all of them, always: time tells nothing
            if hmac.compare_digest(known, digest):
                held = max(held, scope)
        if held is Scope.OPEN:
            raise Unauthorized("this token is not known here")
        if held < needed:
            raise Forbidden(
                f"this needs a token with the scope {needed.name.lower()!r}; this one has"
                f" {held.name.lower()!r}"
            )

    def check_bind(self, setting: str, address: str, *, insecure: bool) -> None:
        """Refuse to listen beyond loopback without tokens, unless that was asked for."""
        if not self._known and not insecure and not is_loopback(split_host_port(address)[0]):
            raise ConfigError(
                f"{setting}: refusing to listen on {address} without tokens, since anybody who"
                " reaches it could use it. Set api.tokens, bind 127.0.0.1, or pass --insecure"
            )


def cannot_listen(setting: str, where: str, exc: OSError) -> ConfigError:
    """Why a port cannot be had, and what to do."""
    if exc.errno == errno.EADDRINUSE:
        variable = f"PENSTOCK_{setting.upper().replace('.', '__')}"
        return ConfigError(
            f"{setting}: {where} is taken by another program; stop it, or set {setting}"
            f" ({variable}) to a free port"
        )
    return ConfigError(f"{setting}: cannot listen on {where}: {exc.strerror or exc}")


def split_host_port(address: str) -> tuple[str, int]:
    """ "127.0.0.1:8700" or "[::1]:8700" → host and port."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    host = host.lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(secret: bytes) -> bytes:
    """Of one length whatever the secret's is, so that comparing does not tell it."""
    return hashlib.sha256(secret).digest()
