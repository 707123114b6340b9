"""`/v1/stats`, `/v1/events` and `/metrics`: the figures, once, as a stream, and for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from litestar import get
from litestar.response import Stream
from litestar.response.base import ASGIResponse

from penstock.api.http.answers import Answer, json_answer, respond
from penstock.api.http.context import Api, TheApi
from penstock.model.errors import Overloaded
from penstock.telemetry.metrics import CONTENT_TYPE, render
from penstock.telemetry.rooms import render_rooms

MAX_STREAMS = 100
PERIOD = 1.0
"""Seconds between two events."""


_encoder = msgspec.json.Encoder()


@get("/v1/stats")
async def stats(api: TheApi) -> ASGIResponse:
    return json_answer(await api.status.stats())


@get("/v1/events")
async def events(api: TheApi) -> Stream:
    """Server-sent events: `stats` once a second, until the client or the server leaves."""
    if api.streams >= MAX_STREAMS:
        raise Overloaded(f"{MAX_STREAMS} streams are open already", retry_after=5)
    return Stream(
        _events(api), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )


@get("/metrics")
async def metrics(api: TheApi) -> ASGIResponse:
    parts = api.parts
    figures = await api.status.figures()
    text = render(parts.observer, figures, api.worker) + render_rooms(api.rooms)
    return respond(Answer(200, text, media=CONTENT_TYPE))


async def _events(api: Api) -> AsyncIterator[bytes]:
    api.streams += 1
    try:
        while not api.closing.is_set():
            yield b"event: stats\ndata: " + _encoder.encode(await api.status.stats()) + b"\n\n"
            try:
                await asyncio.wait_for(api.closing.wait(), PERIOD)
            except TimeoutError:
                continue
    finally:
        api.streams -= 1
