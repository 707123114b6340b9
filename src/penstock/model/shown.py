"""Addresses in a form safe to show: the path of a webhook is often a secret."""

from __future__ import annotations

import hashlib
from urllib.parse import SplitResult, urlsplit

DIGITS = 4
"""Hexadecimal digits that tell two addresses of one host apart and reveal nothing."""


def shown_webhook(url: str | SplitResult) -> str:
    """An http(s) address as scheme, host and a short hash of path and query.

    `https://hooks.slack.com/services/T0/B0/x` is shown as `https://hooks.slack.com/…#3f9a`.
    """
    parts = urlsplit(url) if isinstance(url, str) else url
    host = parts.netloc.rpartition("@")[2]
    hidden = parts.path.removeprefix("/") + (f"?{parts.query}" if parts.query else "")
    if not hidden:
        return f"{parts.scheme}://{host}/"
    digest = hashlib.sha256(hidden.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{parts.scheme}://{host}/…#{digest[:DIGITS]}"
