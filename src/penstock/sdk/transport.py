"""What the two clients share besides the calls: addresses, trust, patience, faults in words.

Who carries the calls is another matter: `sync_link` (http.client) and `async_link` (aiohttp).
"""

from __future__ import annotations

import random
import ssl
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.model.answers import retry_after
from penstock.model.errors import ConfigError, Unreachable
from penstock.model.identity import IdMaker
from penstock.sdk.calls import Call
from penstock.sdk.faults import fault_of
from penstock.sdk.patience import MAX_RETRY_AFTER, Patience
from penstock.time.chance import given_or_fresh

DEFAULT_URL = "http://127.0.0.1:8700"
DEFAULT_TIMEOUT = 30.0
DEFAULT_RETRIES = 4
KEEP_ALIVE = 5.0
"""Seconds an idle connection is kept: less than servers do, who else close it under a request."""


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    retry_after: str | None = None


class NoReply(Exception):
    """None came. `reached`: the request may have been sent; `late`: it only took too long."""

    def __init__(
        self,
        words: str,
        *,
        reached: bool = True,
        late: bool = False,
        hopeless: bool = False,
        untrusted: bool = False,
    ) -> None:
        super().__init__(words)
        self.reached = reached
        self.late = late
        self.hopeless = hopeless or untrusted
        """Something came that cannot be read, and would again."""
        self.untrusted = untrusted
        """No authority that this client trusts has signed the server's certificate."""


@dataclass(slots=True)
class Wiring:
    """One client's address and habits."""

    url: str
    token: str | None
    timeout: float
    retries: int
    ca: str | None = None
    """File of the authorities to trust; None: the usual ones."""
    chance: random.Random = field(default_factory=random.Random)
    _ids: IdMaker = field(default_factory=lambda: IdMaker(given_or_fresh(None)))

    def __post_init__(self) -> None:
        try:
            parsed = urlsplit(self.url)
            host, _ = parsed.hostname, parsed.port
        except (ValueError, TypeError, AttributeError) as exc:
            raise ConfigError(f"url: {self.url!r} is not a URL ({exc})", field="url") from exc
        if parsed.scheme not in {"http", "https"} or not host or not _is_plain(self.url):
            raise ConfigError(f"url: {self.url!r} must be like {DEFAULT_URL}", field="url")
        self.url = self.url.rstrip("/")
        check_token(self.token)
        check_ca(self.ca)

    def headers(self) -> dict[str, str]:
        """Of every request."""
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def target(self, call: Call[Any]) -> str:
        """The whole address of a call, encoded."""
        query = f"?{urlencode(call.query)}" if call.query else ""
        return f"{self.url}{call.path}{query}"

    def make_id(self) -> str:
        return self._ids.make(time.time_ns() // 1_000_000)

    def tries(self) -> Tries:
        return Tries(self)


def _is_plain(url: str) -> bool:
    """Ready to be sent as it is: what is not ASCII is to be encoded by those who wrote it."""
    return url.isascii() and url.isprintable() and " " not in url


def check_token(token: str | None) -> None:
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError("token: must be printable ASCII characters", field="token")


def check_ca(ca: str | None) -> None:
    """ConfigError at once for a file of authorities that cannot be used."""
    if ca is not None:
        trust(ca)


def trust(ca: str | None = None) -> ssl.SSLContext:
    """The authorities in this file; None: the system's, or those of SSL_CERT_FILE and _DIR."""
    from penstock.tls import client_context  # noqa: PLC0415 - only those who speak TLS pay for it

    return client_context(lambda reason, _: ConfigError(f"ca: {reason}", field="ca"), ca)


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


class Tries:
    """One call's patience: show it each answer or failure; it says how long to pause, or raises."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._patience = Patience(wiring.retries, wiring.chance)
        self._wait = 0.0

    def busy(self, call: Call[Any], reply: Reply) -> bool:
        """Whether to wait `pause` and ask again; raises when the server said no for good."""
        if reply.status in call.good:
            return False
        asked = retry_after(reply.retry_after, time.time())
        fault = fault_of(reply.status, reply.body, call.about_id, asked, call.about_kind)
        if reply.status not in {429, 503} or (asked or 0.0) > MAX_RETRY_AFTER:
            raise fault
        if call.counts and reply.status == 503:  # the store went away part of the way
            raise fault
        self._wait = self._patience.again(fault, asked)
        return True

    def failed(self, call: Call[Any], exc: NoReply) -> None:
        """Nobody answered: try again after `pause`, or raise what to tell the caller."""
        unreachable = Unreachable(_sentence(self._wiring.url, exc))
        unreachable.__cause__ = exc
        if exc.hopeless or (exc.reached and not call.repeatable):
            raise unreachable
        self._wait = self._patience.again(unreachable)

    def pause(self) -> float:
        """Seconds to wait now."""
        return self._wait


def _sentence(url: str, exc: NoReply) -> str:
    if exc.untrusted:
        return (
            f"the certificate of {url} is not trusted ({exc}):"
            " name the file of its authority with `ca` (on the command line --ca or PENSTOCK_CA)"
        )
    if exc.late:
        return f"the server at {url} did not answer in time"
    if not exc.reached:
        return (
            f"no Penstock server answers at {url} ({exc}):"
            " start one with `penstock serve`, or check the address"
        )
    return f"the connection to {url} broke ({exc})"
