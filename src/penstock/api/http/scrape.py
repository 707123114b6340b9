"""A port for Prometheus and health checks alone, served by a process without an API."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from functools import partial

from penstock.api.access import is_loopback
from penstock.api.http.answer import Answer
from penstock.api.http.auth import Guard
from penstock.api.http.connection import MAX_HEAD, BoundedProtocol, Pulse
from penstock.api.http.context import Api
from penstock.api.http.errors import MethodNotAllowed
from penstock.api.http.listen import listen_first, url_of
from penstock.api.http.request import Request
from penstock.api.http.router import Endpoint, Router
from penstock.api.http.server import Server, Serving
from penstock.api.verbs import Mount, Verb
from penstock.flow.worker import Worker
from penstock.model.errors import ConfigError, UnknownThing
from penstock.rooms.parts import RoomParts
from penstock.settings import ApiSettings
from penstock.settings.ports import PortRange
from penstock.telemetry.metrics import CONTENT_TYPE, render
from penstock.wiring import Parts

__all__ = ["MAX_HEAD", "ScrapeServer"]

MAX_CONNECTIONS = 50
PATIENCE = "10s"
"""The time a request may take to arrive, and a connection may be idle."""
VERBS = (
    Verb("metrics", "GET", "/metrics", "metrics", "scrape:metrics"),
    Verb("healthz", "GET", "/healthz", "open", "scrape:healthz"),
    Verb("readyz", "GET", "/readyz", "open", "health:readyz"),
)


class ScrapeServer(Serving):
    """`/metrics`, `/healthz`, `/readyz` and the mounted paths, of one process.

    `async with ScrapeServer(…)` serves until the block is left.
    """

    def __init__(
        self,
        where: PortRange,
        setting: str,
        parts: Parts,
        worker: Worker | None = None,
        rooms: RoomParts | None = None,
        *,
        insecure: bool = False,
        mounts: Iterable[Mount] = (),
    ) -> None:
        """Bind the port; ConfigError names the setting that cannot work."""
        tokens = parts.settings.api.tokens
        if not (tokens or insecure or is_loopback(where.host)):
            raise ConfigError(
                f"{setting}: refusing to listen on {where} without tokens, since anybody who"
                " reaches it could read it. Set api.tokens, bind 127.0.0.1, or pass --insecure"
            )
        settings = ApiSettings.model_validate(
            {
                "http": f"{where.host}:{where.first}",
                "tokens": tokens,
                "max_connections": MAX_CONNECTIONS,
                "body_timeout": PATIENCE,
                "keep_alive": PATIENCE,
            }
        )
        here = tuple(mount for mount in mounts if mount.everywhere)
        api = Api(parts, Guard(settings, insecure=insecure), worker, rooms=rooms, mounts=here)
        pulse = Pulse(settings)
        router = Few(api, [*VERBS, *(verb for mount in here for verb in mount.verbs)])
        protocol = partial(BoundedProtocol, pulse=pulse)
        super().__init__(api, Server(router, protocol, pulse, api.closing, 0))
        self._socket = listen_first(where.host, where.ports, setting)

    @property
    def url(self) -> str:
        """The address that Prometheus scrapes."""
        host, port = self.bind().getsockname()[:2]
        return f"{url_of(host, port)}/metrics"

    def bind(self) -> socket.socket:
        return self._socket


class Few(Router):
    """Answers any other path with the list of those that exist."""

    def __init__(self, api: Api, verbs: Sequence[Verb]) -> None:
        super().__init__(api, verbs)
        self._known = ", ".join(verb.path for verb in verbs)

    def _find(self, method: str, path: str) -> tuple[Endpoint, tuple[str, ...]] | None:
        try:
            return super()._find(method, path)
        except (UnknownThing, MethodNotAllowed):
            raise UnknownThing(f"only GET of {self._known} is answered here") from None


async def metrics(request: Request) -> Answer:
    """The process's own figures; the API counts those of the store."""
    api = request.api
    text = render(api.parts.observer, worker=api.worker, more=api.collectors())
    return Answer(200, text, media=CONTENT_TYPE)


async def healthz(request: Request) -> Answer:
    del request
    return Answer(200, b'{"status":"ok"}')
