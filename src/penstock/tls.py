"""TLS contexts from files; an unreadable file is reported with its name and setting."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from penstock.model.errors import ConfigError

Wrong: TypeAlias = Callable[[str, str], ConfigError]
"""Makes the error that names the setting: wrong(reason, setting)."""


def client_context(
    wrong: Wrong, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> ssl.SSLContext:
    """For outgoing connections: the authorities to trust (None: the system's), and our
    certificate.
    """
    if ca is not None:
        _check_readable(ca, "tls_ca", wrong)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as exc:
        raise wrong(f"{ca} holds no certificate in PEM format ({exc.reason})", "tls_ca") from exc
    if cert is not None:
        _load_chain(context, wrong, cert, key)
    elif key is not None:
        raise wrong("is the key of a certificate: set tls_cert too", "tls_key")
    return context


def server_context(wrong: Wrong, cert: str, key: str) -> ssl.SSLContext:
    """For incoming connections: TLS 1.2 or newer, this certificate, and no client certificates."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, wrong, cert, key)
    return context


def _load_chain(context: ssl.SSLContext, wrong: Wrong, cert: str, key: str | None) -> None:
    _check_readable(cert, "tls_cert", wrong)
    if key is not None:
        _check_readable(key, "tls_key", wrong)
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as exc:
        files = cert if key is None else f"{cert} and {key}"
        reason = (exc.reason or str(exc)).replace("_", " ").lower()
        raise wrong(
            f"{files} are not a certificate and its own key without a password, in PEM format"
            f" ({reason})",
            "tls_cert",
        ) from exc


def _no_password() -> str:
    """Replaces OpenSSL's password prompt on the terminal."""
    return ""


def _check_readable(path: str, setting: str, wrong: Wrong) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as exc:
        raise wrong(f"cannot read {path}: {exc.strerror or exc}", setting) from exc
