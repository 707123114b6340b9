"""The figures: once, as a stream, of the last minutes and the next days, and for Prometheus."""

from __future__ import annotations

from litestar import get
from litestar.response import Stream
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import json_answer, respond
from penstock.api.http.context import TheApi
from penstock.model.errors import Overloaded
from penstock.telemetry.metrics import CONTENT_TYPE, render

MAX_STREAMS = 100


@get("/v1/stats")
async def stats(api: TheApi) -> ASGIResponse:
    return json_answer(await api.status.stats())


@get("/v1/events")
async def events(api: TheApi) -> Stream:
    """Server-sent events: `stats` once a second, until the client or the server leaves."""
    if api.live.listeners >= MAX_STREAMS:
        raise Overloaded(f"{MAX_STREAMS} streams are open already", retry_after=5)
    return Stream(
        api.live.events(), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )


@get("/v1/history")
async def history(api: TheApi) -> ASGIResponse:
    return json_answer(api.live.history.view(api.parts.store.clock.now()))


@get("/v1/history/rooms")
async def room_history(api: TheApi) -> ASGIResponse:
    return json_answer(api.live.room_history.view(api.parts.store.clock.now()))


@get("/v1/forecast")
async def forecast(api: TheApi) -> ASGIResponse:
    return json_answer(await api.status.forecast())


@get("/metrics", opt={"scope": Scope.METRICS})
async def metrics(api: TheApi) -> ASGIResponse:
    parts = api.parts
    figures = await api.status.figures()
    text = render(parts.observer, figures, api.worker, api.rooms)
    return respond(Answer(200, text, media=CONTENT_TYPE))
