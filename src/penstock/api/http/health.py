"""Health: alive, and ready to take messages."""

from __future__ import annotations

import time

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.context import VERSION
from penstock.api.http.request import Request
from penstock.model.status_view import HealthOut, Readiness, summary_of


async def healthz(request: Request) -> Answer:
    api = request.api
    uptime = round(time.monotonic() - api.started, 3)
    return json_answer(HealthOut("ok", VERSION, uptime, api.worker is not None))


async def readyz(request: Request) -> Answer:
    api = request.api
    if api.closing.is_set():
        readiness = Readiness("stopping", api.parts.store.name, {}, "the server is stopping")
    else:
        readiness = await api.status.readiness()
    shown = readiness if request.grant.sees_details else summary_of(readiness)
    return json_answer(shown, 200 if readiness.error is None else 503)
