"""`/v1/stats`, `/v1/events` and `/metrics`: the figures, once, as a stream, and for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
from litestar import get
from litestar.response import Stream
from litestar.response.base import ASGIResponse

from penstock.api.http.answers import Answer, json_answer, respond
from penstock.api.http.context import VERSION, Api, TheApi
from penstock.flow.observe import Lateness, Observer
from penstock.model.errors import Overloaded
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.telemetry.metrics import CONTENT_TYPE, render

MAX_STREAMS = 100
PERIOD = 1.0
"""Seconds between two events."""


class RouteStats(msgspec.Struct, frozen=True, kw_only=True):
    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None


class LatenessStats(msgspec.Struct, frozen=True, kw_only=True):
    """released - due in milliseconds; quantiles are upper bounds of their bucket."""

    count: int
    mean: float
    p50: int | None
    p99: int | None
    max: int
    early: int


class StatsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds, and what this process did since it started."""

    now: str
    version: str
    uptime: float
    states: dict[State, int]
    routes: dict[str, RouteStats]
    totals: dict[str, int]
    """Messages by stage: accepted, released, delivered, retry, dead …"""
    counts: dict[str, dict[str, int]]
    """The same by route, then stage."""
    lateness: dict[str, LatenessStats]


_encoder = msgspec.json.Encoder()


@get("/v1/stats")
async def stats(api: TheApi) -> ASGIResponse:
    return json_answer(await gather(api))


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
    figures = await parts.store.figures(parts.store.clock.now())
    return respond(Answer(200, render(parts.observer, figures, api.worker), media=CONTENT_TYPE))


async def gather(api: Api) -> StatsOut:
    store, observer = api.parts.store, api.parts.observer
    now = store.clock.now()
    figures = await store.figures(now)
    totals: dict[str, int] = {}
    for (stage, _), number in observer.counts.items():
        totals[stage] = totals.get(stage, 0) + number
    return StatsOut(
        now=format_moment(now),
        version=VERSION,
        uptime=round(time.monotonic() - api.started, 3),
        states=figures.states,
        routes={
            name: RouteStats(
                scheduled=held.scheduled,
                overdue=held.overdue,
                leased=held.leased,
                dead=held.dead,
                next_due=None if held.next_due is None else format_moment(held.next_due),
            )
            for name, held in figures.routes.items()
        },
        totals=totals,
        counts=_by_route(observer),
        lateness={name: _lateness(late) for name, late in observer.lateness.items()},
    )


def _by_route(observer: Observer) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for (stage, route), number in observer.counts.items():
        counts.setdefault(route, {})[stage] = number
    return counts


def _lateness(late: Lateness) -> LatenessStats:
    return LatenessStats(
        count=late.count,
        mean=round(late.total / late.count, 3) if late.count else 0.0,
        p50=late.quantile(0.5),
        p99=late.quantile(0.99),
        max=late.worst,
        early=late.early,
    )


async def _events(api: Api) -> AsyncIterator[bytes]:
    api.streams += 1
    try:
        while not api.closing.is_set():
            yield b"event: stats\ndata: " + _encoder.encode(await gather(api)) + b"\n\n"
            try:
                await asyncio.wait_for(api.closing.wait(), PERIOD)
            except TimeoutError:
                continue
    finally:
        api.streams -= 1
