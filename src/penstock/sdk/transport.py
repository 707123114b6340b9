"""Shared by the two clients besides the calls: addresses, trust, retries, error texts.

The transports themselves are `sync_link` (http.client) and `async_link` (aiohttp).
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.model.answers import retry_after
from penstock.model.backoff import Backoff
from penstock.model.errors import ConfigError, PenstockError, Unreachable
from penstock.model.identity import IdMaker
from penstock.sdk.calls import Call
from penstock.sdk.faults import fault_of
from penstock.time.chance import given_or_fresh

DEFAULT_URL = "http://127.0.0.1:8700"
DEFAULT_TIMEOUT = 30.0
DEFAULT_RETRIES = 4
KEEP_ALIVE = 5.0
"""Seconds an idle connection is kept: less than servers do, which would else close it during a
request.
"""
PAUSE = Backoff(100, 5_000)
MAX_RETRY_AFTER = 60.0
"""Seconds: a server that asks for more is answered with its own error."""
GATHERED = 500
GATHERED_BYTES = 1 << 20
"""Bytes of one request with messages that are scheduled at the same time."""
GATHER_SECONDS = 0.002
"""Seconds that a message waits for others at most, unless MOST_CALLS requests are in flight."""
MOST_CALLS = 8
HALVED = 16
"""So many messages, while no request is in flight, become two: the server works on one while the
client reads the answer to the other.
"""


class Reply(NamedTuple):
    """A server's answer."""

    status: int
    body: bytes
    retry_after: str | None = None


class NoReply(Exception):
    """No answer. `reached`: the request may have been sent; `late`: it only took too long."""

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
        """True if the answer cannot be read, and a retry would get the same."""
        self.untrusted = untrusted
        """True if no authority that this client trusts has signed the server's certificate."""


@dataclass(slots=True)
class Wiring:
    """One client's address and options."""

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
        """The headers of every request."""
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
    """True if it can be sent as it is; the caller must encode text that is not ASCII."""
    return url.isascii() and url.isprintable() and " " not in url


def check_token(token: str | None) -> None:
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError("token: must be printable ASCII characters", field="token")


def check_ca(ca: str | None) -> None:
    """ConfigError at once for a file of authorities that cannot be used."""
    if ca is not None:
        trust(ca)


def trust(ca: str | None = None) -> ssl.SSLContext:
    """Trust the authorities in this file; None: the system's, or those of SSL_CERT_FILE and
    _DIR.
    """
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


class Patience:
    """The pauses of one call between its tries, and the limit of their number."""

    def __init__(self, retries: int, chance: random.Random) -> None:
        self._retries = retries
        self._chance = chance
        self._failures = 0

    def again(self, fault: PenstockError, asked: float | None = None) -> float:
        """Seconds to wait before the next try, `asked` at least; raises when there is none left."""
        self._failures += 1
        if self._failures > self._retries:
            raise fault
        return max(PAUSE.wait(self._failures, self._chance) / 1000, asked or 0.0)


class Tries:
    """The tries of one call: takes each answer or failure, and returns a pause or raises."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._patience = Patience(wiring.retries, wiring.chance)
        self._wait = 0.0

    def busy(self, call: Call[Any], reply: Reply) -> bool:
        """True if the call is to be repeated after `pause`; raises when the server refused for
        good.
        """
        if reply.status in call.good:
            return False
        asked = retry_after(reply.retry_after, time.time())
        fault = fault_of(reply.status, reply.body, call.about_id, asked, call.about_kind)
        if reply.status not in {429, 503} or (asked or 0.0) > MAX_RETRY_AFTER:
            raise fault
        if call.counts and reply.status == 503:  # the store became unavailable part of the way
            raise fault
        self._wait = self._patience.again(fault, asked)
        return True

    def failed(self, call: Call[Any], exc: NoReply) -> None:
        """Handle a missing answer: try again after `pause`, or raise the error for the caller."""
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


class HasLine(Protocol):
    """A message that waits to be sent."""

    @property
    def line(self) -> bytes: ...


P = TypeVar("P", bound=HasLine)


class Load:
    """The requests in flight that carry the messages scheduled at the same time.

    A further request begins when half as many messages wait as those in flight carry: messages that
    arrive one by one are sent one by one, as long as they are few.
    """

    def __init__(self) -> None:
        self._calls = 0
        self._carried = 0
        self._last = 1
        """Messages of the call that ended last."""

    @property
    def is_alone(self) -> bool:
        """True if no request is in flight, and the last one had a single message."""
        return not self._calls and self._last == 1

    @property
    def has_room(self) -> bool:
        return self._calls < MOST_CALLS

    def may_begin(self, waiting: int) -> bool:
        """True if a request with so many messages may begin now."""
        return self.has_room and 2 * waiting * self._calls >= self._carried

    def take(self, waiting: Sequence[P]) -> tuple[Sequence[P], list[P]]:
        """Split the waiting messages into those of the next request and the rest."""
        most = GATHERED
        if not self._calls and len(waiting) >= HALVED:
            most = min(most, (len(waiting) + 1) // 2)
        sizes = accumulate(len(place.line) for place in waiting[:most])
        number = 1 + sum(1 for _ in takewhile(GATHERED_BYTES.__gt__, sizes))
        number = min(number, most)
        return waiting[:number], list(waiting[number:])

    def begin(self, size: int) -> None:
        self._calls += 1
        self._carried += size

    def end(self, size: int) -> None:
        self._calls -= 1
        self._carried -= size
        self._last = size
