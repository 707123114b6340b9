"""Health: alive, and ready to take messages."""

from __future__ import annotations

import time

import msgspec
from litestar import get
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.context import VERSION, TheApi
from penstock.model.status_view import Readiness, summary_of


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
async def readyz(request: HttpRequest, api: TheApi) -> ASGIResponse:
    if api.closing.is_set():
        readiness = Readiness("stopping", api.parts.store.name, {}, "the server is stopping")
    else:
        readiness = await api.status.readiness()
    shown = readiness if request.auth.sees_details else summary_of(readiness)
    return json_answer(shown, 200 if readiness.error is None else 503)
