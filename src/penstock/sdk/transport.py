"""What the two clients share besides the calls: addresses, patience, and httpx's words as ours."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from penstock.model.answers import retry_after
from penstock.model.errors import ConfigError, Unreachable
from penstock.model.identity import IdMaker
from penstock.sdk.calls import Call
from penstock.sdk.faults import fault_of
from penstock.sdk.patience import MAX_RETRY_AFTER, Patience

DEFAULT_URL = "http://127.0.0.1:8700"
DEFAULT_TIMEOUT = 30.0
DEFAULT_RETRIES = 4


@dataclass(slots=True)
class Wiring:
    """One client's address and habits."""

    url: str
    token: str | None
    timeout: float
    retries: int
    chance: random.Random = field(default_factory=random.Random)
    _ids: IdMaker = field(default_factory=IdMaker)

    def __post_init__(self) -> None:
        try:
            parsed = httpx.URL(self.url)
        except (httpx.InvalidURL, TypeError) as exc:
            raise ConfigError(f"url: {self.url!r} is not a URL ({exc})", field="url") from exc
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise ConfigError(f"url: {self.url!r} must be like {DEFAULT_URL}", field="url")
        self.url = self.url.rstrip("/")
        check_token(self.token)

    def options(self) -> dict[str, Any]:
        """For httpx.Client and httpx.AsyncClient alike."""
        headers = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        return {"headers": headers, "timeout": self.timeout, "follow_redirects": False}

    def request(self, call: Call[Any]) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "method": call.method,
            "url": f"{self.url}{call.path}",
            "params": call.query or None,
            "content": call.body,
            "headers": call.headers(),
        }
        if call.bulk:
            asked["timeout"] = httpx.Timeout(self.timeout, read=None)
        return asked

    def make_id(self) -> str:
        return self._ids.make(time.time_ns() // 1_000_000)

    def tries(self) -> Tries:
        return Tries(self)


def check_token(token: str | None) -> None:
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError("token: must be printable ASCII characters", field="token")


class Tries:
    """One call's patience: show it each answer or failure; it says how long to pause, or raises."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._patience = Patience(wiring.retries, wiring.chance)
        self._wait = 0.0

    def busy(self, call: Call[Any], answer: httpx.Response) -> bool:
        """Whether to wait `pause` and ask again; raises when the server said no for good."""
        if answer.status_code in call.good:
            return False
        asked = retry_after(answer.headers.get("retry-after"), time.time())
        fault = fault_of(answer.status_code, answer.content, call.about_id, asked)
        if answer.status_code not in {429, 503} or (asked or 0.0) > MAX_RETRY_AFTER:
            raise fault
        if call.counts and answer.status_code == 503:  # the store went away part of the way
            raise fault
        self._wait = self._patience.again(fault, asked)
        return True

    def failed(self, call: Call[Any], exc: httpx.HTTPError) -> None:
        """Nobody answered: try again after `pause`, or raise what to tell the caller."""
        never_sent = isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        unreachable = Unreachable(_sentence(self._wiring.url, exc))
        unreachable.__cause__ = exc
        if not isinstance(exc, httpx.TransportError) or not (never_sent or call.repeatable):
            raise unreachable
        self._wait = self._patience.again(unreachable)

    def pause(self) -> float:
        """Seconds to wait now."""
        return self._wait


def _sentence(url: str, exc: httpx.HTTPError) -> str:
    if isinstance(exc, httpx.TimeoutException) and not isinstance(exc, httpx.ConnectTimeout):
        return f"the server at {url} did not answer in time"
    if isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout):
        return (
            f"no Penstock server answers at {url} ({str(exc) or type(exc).__name__}):"
            " start one with `penstock serve`, or check the address"
        )
    return f"the connection to {url} broke ({str(exc) or type(exc).__name__})"
