"""Access to every API alike: tokens with scopes, and no open bind without them."""

from __future__ import annotations

import errno
import hashlib
import hmac
import ipaddress
import logging

from penstock.api.grants import ANYONE, NOBODY, Grant, Scope
from penstock.model.errors import ConfigError, Forbidden, Unauthorized
from penstock.settings import ApiSettings, TokenSettings

log = logging.getLogger("penstock.api")

MIN_SECRET = 16
"""Bytes of a token's secret: a shorter one can be guessed."""


class Tokens:
    """The tokens of the settings; without any, everybody may do everything."""

    def __init__(self, api: ApiSettings) -> None:
        secrets = [token.secret.get_secret_value() for token in api.tokens]
        if any(not secret.strip() for secret in secrets):
            raise ConfigError("api.tokens: a secret must not be empty")
        if len(set(secrets)) < len(secrets):
            raise ConfigError("api.tokens: two tokens have the same secret")
        self._known = [
            (_digest(secret.encode()), _grant(token, place))
            for place, (secret, token) in enumerate(zip(secrets, api.tokens, strict=True), 1)
        ]
        self._short = [
            grant.name
            for secret, (_, grant) in zip(secrets, self._known, strict=True)
            if len(secret.encode()) < MIN_SECRET
        ]

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def warnings(self) -> list[str]:
        """Weaknesses of the configured tokens, one sentence each."""
        return [
            f"api.tokens: the secret of {name!r} is shorter than {MIN_SECRET} bytes and can be"
            " guessed; make one with `openssl rand -hex 32`"
            for name in self._short
        ]

    def warn(self) -> None:
        for warning in self.warnings:
            log.warning("%s", warning)

    def grant(self, authorization: bytes | None) -> Grant:
        """The grant of the token in this header; NOBODY's for an unknown token."""
        if not self._known:
            return ANYONE
        kind, _, secret = (authorization or b"").strip().partition(b" ")
        if kind.lower() != b"bearer":
            return NOBODY
        digest = _digest(secret.strip())
        found = NOBODY
        for (
            known,
            grant,
        ) in self._known:  # compares all of them, always: the duration reveals nothing
            if hmac.compare_digest(known, digest):
                found = grant
        return found

    def check(self, authorization: bytes | None, needed: Scope) -> Grant:
        """The grant of the token in this header; refuse one that does not cover `needed`."""
        if not self._known:
            return ANYONE
        if needed is Scope.OPEN:
            return NOBODY
        grant = self.grant(authorization)
        if grant is NOBODY:
            is_bearer = (authorization or b"").strip().lower().startswith(b"bearer ")
            raise Unauthorized(
                "this token is not known here"
                if is_bearer
                else "send a token: Authorization: Bearer …"
            )
        if grant.scope < needed:
            raise Forbidden(
                f"this needs a token with the scope {needed.name.lower()!r}; this one has"
                f" {grant.scope.name.lower()!r}"
            )
        return grant

    def check_bind(self, setting: str, address: str, *, insecure: bool) -> None:
        """Refuse to listen beyond loopback without tokens, unless `--insecure` allows it."""
        if not self._known and not insecure and not is_loopback(split_host_port(address)[0]):
            raise ConfigError(
                f"{setting}: refusing to listen on {address} without tokens, since anybody who"
                " reaches it could use it. Set api.tokens, bind 127.0.0.1, or pass --insecure"
            )


def cannot_listen(setting: str, where: str, exc: OSError) -> ConfigError:
    """The error for a port that cannot be bound, with the remedy."""
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


def _grant(token: TokenSettings, place: int) -> Grant:
    named = "name" in token.model_fields_set
    return Grant(
        name=token.name if named else f"{token.name}-{place}",
        scope=Scope[token.scope.upper()],
        routes=frozenset(token.routes) if token.routes is not None else None,
        classes=frozenset(token.classes) if token.classes is not None else None,
    )


def _digest(secret: bytes) -> bytes:
    """A digest of fixed length, so that comparing it does not reveal the secret's length."""
    return hashlib.sha256(secret).digest()
