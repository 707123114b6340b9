"""`/actuator/*`: what the Dispatcher's monitoring asked for, answered by the same names."""

from __future__ import annotations

from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.actuator import health_of, metric_of, metrics_of
from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, json_answer, respond
from penstock.api.http.context import TheApi
from penstock.telemetry.rooms import CONTENT_TYPE, render_rooms

OPEN = {"scope": Scope.OPEN}


@get("/actuator/health", opt=OPEN)
async def health(request: HttpRequest, api: TheApi) -> ASGIResponse:
    found = await health_of(api.parts.store, api.rooms, details=request.auth.sees_details)
    return json_answer(found, found.code)


@get("/actuator/metrics")
async def metrics(api: TheApi) -> ASGIResponse:
    return json_answer(metrics_of(api.rooms))


@get("/actuator/metrics/{name:str}")
async def metric(name: FromPath[str], api: TheApi) -> ASGIResponse:
    return json_answer(metric_of(api.rooms, name))


@get("/actuator/prometheus")
async def prometheus(api: TheApi) -> ASGIResponse:
    return respond(Answer(200, render_rooms(api.rooms), media=CONTENT_TYPE))
