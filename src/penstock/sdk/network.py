"""Whom the clients trust and what the environment puts between them and the server."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.model.errors import ConfigError
from penstock.tls import client_context

KEEP_ALIVE = 5.0
"""Seconds an idle connection is kept: less than servers do, who else close it under a request."""


def check_ca(ca: str | None) -> None:
    """ConfigError at once for a file of authorities that cannot be used."""
    if ca is not None:
        trust(ca)


def trust(ca: str | None = None) -> ssl.SSLContext:
    """The authorities in this file; None: certifi's, or those of SSL_CERT_FILE and SSL_CERT_DIR."""
    if ca is not None:
        return client_context(lambda reason, _: ConfigError(f"ca: {reason}", field="ca"), ca)
    import httpx  # noqa: PLC0415 - only those who speak TLS pay for it

    return httpx.create_ssl_context()


def proxy_for(url: str) -> str | None:
    """The environment's proxy for this address, http://…; ConfigError for another kind."""
    address = urlsplit(url)
    proxies = getproxies()
    found = proxies.get(address.scheme) or proxies.get("all")
    if found is None or proxy_bypass(address.hostname or ""):
        return None
    if "://" not in found:
        found = f"http://{found}"
    if not found.startswith("http://"):
        raise ConfigError(f"proxy: must be http://…, not {found.partition(':')[0]}://…")
    return found
