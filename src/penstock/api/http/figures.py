"""The figures: as one answer, as a stream, as history and forecast, and for Prometheus."""

from __future__ import annotations

from operator import attrgetter

from penstock.api.http.answer import Answer, Stream, json_answer
from penstock.api.http.request import Request
from penstock.model.errors import Overloaded
from penstock.telemetry.metrics import CONTENT_TYPE, render, render_all

MAX_STREAMS = 100


async def read(request: Request) -> Answer:
    """Call the method of the flow that the table names, with the arguments of the path."""
    return json_answer(await attrgetter(request.verb.flow)(request.api)(*request.args))


async def events(request: Request) -> Stream:
    """Server-sent events: `stats` once a second, until the client or the server leaves."""
    live = request.api.live
    if live.listeners >= MAX_STREAMS:
        raise Overloaded(f"{MAX_STREAMS} streams are open already", retry_after=5)
    return Stream(live.events(), ("cache-control", "no-store"), media=request.verb.media)


async def history(request: Request) -> Answer:
    api = request.api
    await api.live.catch_up()
    return json_answer(api.live.history.view(api.parts.store.clock.now()))


async def room_history(request: Request) -> Answer:
    api = request.api
    return json_answer(api.live.room_history.view(api.parts.store.clock.now()))


async def metrics(request: Request) -> Answer:
    api = request.api
    figures = await api.status.figures()
    if api.everyone is None:
        text = render(api.parts.observer, figures, api.worker, api.collectors())
    else:
        text = render_all(await api.everyone(), figures)
    return Answer(200, text, media=CONTENT_TYPE)
