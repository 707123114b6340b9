"""The measurements: each returns a rate, its durations and the bottleneck."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from penstock.flow.worker import Worker
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, UnknownThing
from penstock.model.message import Message
from penstock.model.times import format_moment
from penstock.ports.sink import Sink
from penstock.settings import RouteSettings, Settings
from penstock.settings.secrets import redact
from penstock.version import __version__
from penstock.wiring import Parts, handler_sink, open_parts, open_sink, open_worker, scratch_store

ROUTE = "bench"
BATCH = 500
HOUR = 3_600.0
AHEAD = 2.0
"""Seconds from the first put to the first message of the lateness measurement being due."""
BUSY = 0.85
"""From this share of a core on, this process itself is the bottleneck."""
SLOWER = 0.7
"""Deliveries slower than this share of claims alone are limited by the sink."""
PATIENCE = 60.0
"""Seconds without a single delivery after which a measurement is given up."""
KEPT_UP = 0.95
"""Share of the requested rate that must be delivered to have kept up."""
ON_TIME = 100.0
"""Greatest p99 lateness in milliseconds that counts as having kept up."""


class Plan(msgspec.Struct, frozen=True):
    messages: int
    payload: int
    clients: int
    rate: int
    seconds: int
    route: str | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that make figures comparable."""

    store: str
    """The store's address without secrets."""
    penstock: str
    python: str
    cores: int
    messages: int
    payload: int
    """Bytes."""


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    what: str
    rate: float
    """Messages a second."""
    cpu: float
    """Share of one core that this process used."""
    limit: str
    p50: float | None = None
    p99: float | None = None
    max: float | None = None
    """Milliseconds: of a call, or of lateness."""
    early: int = 0
    messages: int
    """Messages to put or deliver."""
    failed: int = 0
    """Messages that were not delivered."""


class Watch:
    """Wall time and this process's share of a core since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self) -> tuple[float, float]:
        wall = time.perf_counter() - self._wall
        return wall, (time.process_time() - self._cpu) / wall


def context(settings: Settings, plan: Plan) -> Context:
    return Context(
        store=redact(settings.store),
        penstock=__version__,
        python=platform.python_version(),
        cores=_cores(),
        messages=plan.messages,
        payload=plan.payload,
    )


async def run(settings: Settings, plan: Plan, tell: Callable[[str], None]) -> AsyncIterator[Result]:
    """Yield one result after the other, from a scratch store that is removed at the end."""
    real = None if plan.route is None else _real_route(settings, plan.route)
    if plan.route is not None and real is not None:
        await _reach(plan.route, real)
    async with scratch_store(settings) as scratch:
        limits = scratch.limits.model_copy(update={"min_delay": None, "max_delay": None})
        routes = {ROUTE: real or RouteSettings()}
        ours = scratch.model_copy(update={"routes": routes, "limits": limits})
        async with open_parts(ours) as parts:
            tell("puts in batches")
            puts = await _batches(parts, plan)
            yield puts
            tell("single puts")
            yield await _singles(parts, plan)
            tell("claim, no-op, settle")
            claims = await _drain(parts, plan, None)
            yield claims
            tell(f"lateness at {plan.rate:,} a second")
            yield await _lateness(parts, plan, puts.rate)
            if real is not None:
                tell(f"deliveries to {plan.route}")
                sink = await open_sink(ROUTE, real)
                try:
                    yield await _drain(parts, plan, sink, beside=claims)
                finally:
                    await sink.close()


def _real_route(settings: Settings, name: str) -> RouteSettings:
    routes = settings.all_routes()
    if name not in routes:
        raise UnknownThing(f"no route named {name!r} in the settings", field="route")
    return routes[name]


async def _reach(name: str, route: RouteSettings) -> None:
    """Check that the sink answers before the other measurements begin."""
    sink = await open_sink(name, route)
    try:
        await sink.check()
    finally:
        await sink.close()


def _drafts(plan: Plan, number: int, delay: float | None) -> list[Draft]:
    payload = msgspec.Raw(b'"' + b"x" * (plan.payload - 2) + b'"')
    return [Draft(route=ROUTE, payload=payload, delay=delay) for _ in range(number)]


async def _put(parts: Parts, drafts: list[Draft]) -> None:
    """Put all drafts, or raise the first refusal: a figure without some of them would mean
    nothing.
    """
    for outcome in await parts.intake.schedule(drafts):
        if isinstance(outcome, PenstockError):
            raise outcome


async def _batches(parts: Parts, plan: Plan) -> Result:
    drafts = _drafts(plan, plan.messages, HOUR)
    took: list[float] = []
    watch = Watch()
    for start in range(0, len(drafts), BATCH):
        began = time.perf_counter()
        await _put(parts, drafts[start : start + BATCH])
        took.append((time.perf_counter() - began) * 1000)
    wall, cpu = watch.stop()
    result = Result(
        what=f"put, {BATCH} a call",
        messages=plan.messages,
        rate=plan.messages / wall,
        cpu=cpu,
        limit=_store_limit(cpu),
    )
    return _timed(result, took)


async def _singles(parts: Parts, plan: Plan) -> Result:
    drafts = iter(_drafts(plan, plan.messages, HOUR))
    took: list[float] = []

    async def client() -> None:
        for draft in drafts:
            began = time.perf_counter()
            await parts.intake.schedule_one(draft)
            took.append((time.perf_counter() - began) * 1000)

    watch = Watch()
    async with asyncio.TaskGroup() as group:
        for _ in range(plan.clients):
            group.create_task(client())
    wall, cpu = watch.stop()
    result = Result(
        what=f"put one by one, {plan.clients} at once",
        messages=plan.messages,
        rate=plan.messages / wall,
        cpu=cpu,
        limit=_store_limit(cpu),
    )
    return _timed(result, took)


async def _drain(
    parts: Parts, plan: Plan, sink: Sink | None, beside: Result | None = None
) -> Result:
    """A backlog that is due, through claim, send and settle."""
    before = parts.observer.counts.get(("delivered", ROUTE), 0)
    for start in range(0, plan.messages, BATCH):
        await _put(parts, _drafts(plan, min(BATCH, plan.messages - start), 0.0))
    watch = Watch()
    async with _working(parts, sink or handler_sink(ROUTE, _nothing)):
        done = await _settled(parts, before, plan.messages)
    wall, cpu = watch.stop()
    rate = done / wall
    return Result(
        what="claim, no-op, settle" if beside is None else f"deliver to {plan.route}",
        messages=plan.messages,
        rate=rate,
        cpu=cpu,
        limit=_store_limit(cpu) if beside is None else sink_limit(rate, cpu, beside),
        failed=plan.messages - done,
    )


async def _lateness(parts: Parts, plan: Plan, put_rate: float) -> Result:
    """Lateness of messages that come due evenly, all put before the first is due."""
    clock = parts.store.clock
    lates: list[float] = []
    last = 0

    async def handle(batch: list[Message]) -> None:
        nonlocal last
        last = clock.now()
        lates.extend(last - message.due for message in batch)

    number = plan.rate * plan.seconds
    before = parts.observer.counts.get(("delivered", ROUTE), 0)
    # Twice the time that the puts should take, so that none of them is late because of its put.
    first = clock.now() + round((AHEAD + 2 * number / put_rate) * 1000)
    drafts = _drafts(plan, number, None)
    for turn, draft in enumerate(drafts):
        draft.at = format_moment(first + turn * 1000 // plan.rate)
    async with _working(parts, handler_sink(ROUTE, handle)):
        for start in range(0, number, BATCH):
            await _put(parts, drafts[start : start + BATCH])
        await asyncio.sleep(max(0, first - clock.now()) / 1000)
        watch = Watch()  # only now: waiting for the first one would make the core look idle
        done = await _settled(parts, before, number)
        _, cpu = watch.stop()
    result = Result(
        what=f"lateness at {plan.rate:,}/s",
        messages=number,
        rate=delivered_rate(done, first, last, plan.rate),
        cpu=cpu,
        limit=_store_limit(cpu),
        early=sum(each < 0 for each in lates),
        failed=number - done,
    )
    late = _timed(result, lates)
    if kept_up(late, plan.rate):
        return msgspec.structs.replace(late, limit="nothing: it kept up")
    return late


def delivered_rate(number: int, first: int, last: int, asked: int) -> float:
    """Messages a second from the first due moment to the last delivery, both in milliseconds.

    The last message has its own share of a second too: without it, one that is alone would
    have taken no time at all.
    """
    return number / ((last - first) / 1000 + 1 / asked) if number else 0.0


def kept_up(late: Result, asked: int) -> bool:
    """True if messages left as fast as they came due, and soon after."""
    if late.failed or late.p99 is None:
        return False
    return late.rate >= KEPT_UP * asked and late.p99 <= ON_TIME


async def _nothing(batch: list[Message]) -> None:
    """The sink that costs nothing."""


@asynccontextmanager
async def _working(parts: Parts, sink: Sink) -> AsyncIterator[Worker]:
    """A worker on the bench's route alone, stopped and drained at the end of the block."""
    idle = handler_sink("default", _nothing)
    async with open_worker(parts, {ROUTE: sink, "default": idle}) as worker:
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task


async def _settled(parts: Parts, before: int, number: int) -> int:
    """Wait until so many more are delivered or dead, or nothing has moved for long.

    How many are delivered.
    """
    counts = parts.observer.counts
    moved = time.monotonic()
    last = -1
    while True:
        done = counts.get(("delivered", ROUTE), 0) - before
        settled = done + counts.get(("dead", ROUTE), 0)
        if settled >= number:
            return done
        if settled != last:
            last, moved = settled, time.monotonic()
        elif time.monotonic() - moved > PATIENCE:
            return done
        await asyncio.sleep(0.005)


def sink_limit(rate: float, cpu: float, claims: Result) -> str:
    """Name the bottleneck of deliveries, given the rate of claims alone."""
    if cpu >= BUSY:
        return "this process's core"
    return "the sink" if rate < SLOWER * claims.rate else "waiting for the store or the sink"


def _store_limit(cpu: float) -> str:
    return "this process's core" if cpu >= BUSY else "waiting for the store"


def _timed(result: Result, took: Sequence[float]) -> Result:
    """The result with how long it took in milliseconds, where anything was measured."""
    if not took:
        return result
    ordered = sorted(took)
    last = len(ordered) - 1
    return msgspec.structs.replace(
        result, p50=ordered[last // 2], p99=ordered[int(last * 0.99)], max=ordered[last]
    )


def _cores() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
