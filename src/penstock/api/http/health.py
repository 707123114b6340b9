"""Health: alive, and ready to take messages."""

from __future__ import annotations

import time

import msgspec
from litestar import get
from litestar.response.base import ASGIResponse

from penstock.api.access import Scope
from penstock.api.http.answers import json_answer
from penstock.api.http.context import VERSION, TheApi
from penstock.flow.health import Readiness


class HealthOut(msgspec.Struct, frozen=True):
    """The process is up; what it stands on is readyz's business."""

    status: str
    version: str
    uptime: float
    worker: bool


@get("/healthz", opt={"scope": Scope.OPEN})
async def healthz(api: TheApi) -> ASGIResponse:
    uptime = round(time.monotonic() - api.started, 3)
    return json_answer(HealthOut("ok", VERSION, uptime, api.worker is not None))


@get("/readyz", opt={"scope": Scope.OPEN})
async def readyz(api: TheApi) -> ASGIResponse:
    if api.closing.is_set():
        stopping = Readiness("stopping", api.parts.store.name, {}, "the server is stopping")
        return json_answer(stopping, 503)
    readiness = await api.status.readiness()
    return json_answer(readiness, 200 if readiness.error is None else 503)
