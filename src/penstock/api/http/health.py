"""Health: alive, and ready to take messages."""

from __future__ import annotations

import time

import msgspec
from litestar import get
from litestar.response.base import ASGIResponse

from penstock.api.http.answers import json_answer
from penstock.api.http.auth import Scope
from penstock.api.http.context import VERSION, TheApi
from penstock.model.errors import PenstockError


class HealthOut(msgspec.Struct, frozen=True):
    """The process is up; what it stands on is readyz's business."""

    status: str
    version: str
    uptime: float
    worker: bool


class ReadyOut(msgspec.Struct, frozen=True):
    """Whether messages can be taken now, with the facts."""

    status: str
    store: str
    facts: dict[str, str]
    error: str | None = None


@get("/healthz", opt={"scope": Scope.OPEN})
async def healthz(api: TheApi) -> ASGIResponse:
    uptime = round(time.monotonic() - api.started, 3)
    return json_answer(HealthOut("ok", VERSION, uptime, api.worker is not None))


@get("/readyz", opt={"scope": Scope.OPEN})
async def readyz(api: TheApi) -> ASGIResponse:
    store = api.parts.store
    if api.closing.is_set():
        return json_answer(ReadyOut("stopping", store.name, {}, "the server is stopping"), 503)
    try:
        facts = await store.check()
    except PenstockError as exc:
        return json_answer(ReadyOut("not ready", store.name, {}, exc.message), 503)
    return json_answer(ReadyOut("ready", store.name, facts))
