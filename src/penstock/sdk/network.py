"""Whom the clients trust and what the environment puts between them and the server."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.model.errors import ConfigError

KEEP_ALIVE = 5.0
"""Seconds an idle connection is kept: less than servers do, who else close it under a request."""


def trust() -> ssl.SSLContext:
    """certifi's authorities, or those that SSL_CERT_FILE and SSL_CERT_DIR name."""
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
