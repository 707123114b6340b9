"""Signatures of the Standard Webhooks scheme (v1: HMAC-SHA256 over "id.timestamp.body")."""

from __future__ import annotations

import base64
import binascii
import hmac

PREFIX = "whsec_"


class Signer:
    """Signs with one key, or with several during a key rotation."""

    def __init__(self, secrets: str) -> None:
        """`whsec_` + base64, or any text as it is; several are separated by spaces.

        ValueError when there is no key in it; the text never shows the secret.
        """
        self._keys = tuple(_key(secret) for secret in secrets.split())
        if not self._keys:
            raise ValueError("is empty")

    def sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        """The value of `webhook-signature`: one signature per key, separated by spaces."""
        content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
        return " ".join(
            "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode()
            for key in self._keys
        )

    def signed(self, signatures: str, message_id: str, timestamp: int, body: bytes) -> bool:
        """Whether any of a request's signatures was made with one of these keys."""
        ours = self.sign(message_id, timestamp, body).split()
        return any(
            hmac.compare_digest(theirs.encode(), mine.encode())
            for theirs in signatures.split()
            for mine in ours
        )


def _key(secret: str) -> bytes:
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError(f"must be base64 after {PREFIX}")
    return key
