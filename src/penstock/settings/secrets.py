"""Which parts of a setting are secret."""

from __future__ import annotations

import re
from urllib.parse import unquote

from penstock.model.shown import shown_webhook

_CREDENTIALS = re.compile(r"(?<=://)(?:[^/?#\s]*|[^/?#\s@]*:(?!\d+(?:/|$))[^\s@]*)@")
_SECRET_NAME = re.compile(
    r"pass|pwd|secret|token|credential|auth|cookie|^key$|^sig$|signature|signing"
    r"|(?:api|access|account|private|shared|subscription)[_.-]?key",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"change[-_ ]?me", re.IGNORECASE)
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_QUERY = re.compile(r"(?<=[?&;])([^=&;#\s]+)=[^&;#\s]*")


def refuse_placeholder(secret: str) -> None:
    """ValueError for a secret that an example or a template left to be replaced."""
    if _PLACEHOLDER.search(secret):
        raise ValueError(
            "is a placeholder that everybody knows; make one with"
            " python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )


def redact(url: str) -> str:
    """A URL without its user, its password and the secrets of its query.

    Of http(s) addresses the whole path is left out: that of a webhook often is its secret.
    """
    if _HTTP.match(url):
        return shown_webhook(_CREDENTIALS.sub("***@", url))
    return _QUERY.sub(_redact_pair, _CREDENTIALS.sub("***@", url))


def _redact_pair(pair: re.Match[str]) -> str:
    # A value may be a URL itself, written with %-escapes that hide its credentials from us.
    hidden = _CREDENTIALS.search(unquote(pair[0].partition("=")[2]).replace("***@", ""))
    return f"{pair[1]}=***" if hidden or names_secret(pair[1]) else pair[0]


def names_secret(name: str) -> bool:
    """True if a setting, header or parameter of this name is secret."""
    return _SECRET_NAME.search(name) is not None
