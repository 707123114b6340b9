"""Entry tokens: JWTs, and the secrets that prove a visitor owns a ticket.

Signed with HS256. The first key signs; every key is accepted, so a key is replaced by putting a new
one before it and removing the old one when its last token has expired.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

import jwt
import msgspec

ALGORITHM = "HS256"
MIN_KEY = 32
"""Bytes of a key: a shorter one is weaker than the hash."""
_CLAIMS = ["iss", "aud", "sub", "jti", "iat", "nbf", "exp"]


class SigningKey(msgspec.Struct, frozen=True):
    kid: str
    secret: bytes


class JwtSigner:
    """A TokenSigner that knows keys but no room's state, which is read from the store."""

    def __init__(self, keys: Sequence[SigningKey], issuer: str = "penstock") -> None:
        self._first = keys[0]
        self._keys = {key.kid: key for key in keys}
        self._issuer = issuer
        self._headers = {"kid": self._first.kid}

    def sign(self, room: str, user: str, pass_id: str, issued: int, expires: int) -> str:
        claims = {
            "iss": self._issuer,
            "aud": room,
            "sub": user,
            "jti": pass_id,
            "iat": issued,
            "nbf": issued,
            "exp": expires,
        }
        return jwt.encode(claims, self._first.secret, ALGORITHM, headers=self._headers)

    def read(self, token: str, room: str, now: int) -> tuple[str, str] | None:
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = self._keys.get(kid) if isinstance(kid, str) else self._first
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key.secret,
                algorithms=[ALGORITHM],
                audience=room,
                issuer=self._issuer,
                # Time is given, not read: the store's clock decides.
                options={
                    "require": _CLAIMS,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.InvalidTokenError, ValueError):
            return None
        return self._in_time(claims, now)

    def _in_time(self, claims: dict[str, object], now: int) -> tuple[str, str] | None:
        begins, ends = claims["nbf"], claims["exp"]
        if not isinstance(begins, int) or not isinstance(ends, int):
            return None
        if not begins * 1000 <= now < ends * 1000:
            return None
        return str(claims["sub"]), str(claims["jti"])

    def ticket_secret(self, room: str, epoch: int, user: str, number: int) -> str:
        return _secret(self._first.secret, room, epoch, user, number)

    def is_ticket_secret(self, text: str, room: str, epoch: int, user: str, number: int) -> bool:
        given = text.encode("utf-8", "replace")
        return any(
            hmac.compare_digest(given, _secret(key.secret, room, epoch, user, number).encode())
            for key in self._keys.values()
        )


def _secret(key: bytes, room: str, epoch: int, user: str, number: int) -> str:
    said = msgspec.json.encode(["ticket", room, epoch, user, number])
    digest = hmac.new(key, said, hashlib.sha256).digest()[:18]
    return base64.urlsafe_b64encode(digest).decode()
