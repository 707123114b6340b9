"""The measurements: each says how many a second, how long they took, and what was the limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from penstock.flow.worker import Worker
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, UnknownThing
from penstock.model.message import Message
from penstock.ports.sink import Sink
from penstock.settings import RouteSettings, Settings
from penstock.wiring import Parts, handler_sink, open_parts, open_sink, open_worker, scratch_store

ROUTE = "bench"
BATCH = 500
HOUR = 3_600.0
AHEAD = 2.0
"""Seconds from the first put to the first message of the lateness measurement being due."""
BUSY = 0.85
"""From this share of a core on, this process itself is what limits."""
SLOWER = 0.7
"""Deliveries slower than this share of claims alone are held back by the sink."""
PATIENCE = 60.0
"""Seconds without a single delivery after which a measurement is given up."""


class Plan(msgspec.Struct, frozen=True):
    messages: int
    payload: int
    clients: int
    rate: int
    seconds: int
    route: str | None = None


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
    failed: int = 0


class Watch:
    """Wall time and this process's share of a core since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self) -> tuple[float, float]:
        wall = time.perf_counter() - self._wall
        return wall, (time.process_time() - self._cpu) / wall


async def run(settings: Settings, plan: Plan, tell: Callable[[str], None]) -> AsyncIterator[Result]:
    """One result after the other, on a scratch store that is removed in the end."""
    real = None if plan.route is None else _real_route(settings, plan.route)
    async with scratch_store(settings) as scratch:
        limits = scratch.limits.model_copy(update={"min_delay": None, "max_delay": None})
        routes = {ROUTE: real or RouteSettings()}
        ours = scratch.model_copy(update={"routes": routes, "limits": limits})
        async with open_parts(ours) as parts:
            tell("puts in batches")
            yield await _batches(parts, plan)
            tell("single puts")
            yield await _singles(parts, plan)
            tell("claim, no-op, settle")
            claims = await _drain(parts, plan, None)
            yield claims
            tell(f"lateness at {plan.rate:,} a second")
            yield await _lateness(parts, plan)
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


def _drafts(plan: Plan, number: int, delay: float) -> list[Draft]:
    payload = msgspec.Raw(b'"' + b"x" * (plan.payload - 2) + b'"')
    return [Draft(route=ROUTE, payload=payload, delay=delay) for _ in range(number)]


async def _put(parts: Parts, drafts: list[Draft]) -> None:
    """All of them, or the first refusal: a figure without some would mean nothing."""
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
    return _timed(f"put, {BATCH} a call", plan.messages / wall, cpu, took, _store_limit(cpu))


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
    what = f"put one by one, {plan.clients} at once"
    return _timed(what, plan.messages / wall, cpu, took, _store_limit(cpu))


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
    if beside is None:
        return Result(what="claim, no-op, settle", rate=rate, cpu=cpu, limit=_store_limit(cpu))
    return Result(
        what=f"deliver to {plan.route}",
        rate=rate,
        cpu=cpu,
        limit=sink_limit(rate, beside),
        failed=plan.messages - done,
    )


async def _lateness(parts: Parts, plan: Plan) -> Result:
    """Messages that come due evenly, all put before the first of them is."""
    lates: list[float] = []

    async def handle(batch: list[Message]) -> None:
        now = parts.store.clock.now()
        lates.extend(now - message.due for message in batch)

    number = plan.rate * plan.seconds
    before = parts.observer.counts.get(("delivered", ROUTE), 0)
    ahead = AHEAD + number / 20_000
    drafts = _drafts(plan, number, 0.0)
    for turn, draft in enumerate(drafts):
        draft.delay = ahead + turn / plan.rate
    watch = Watch()
    async with _working(parts, handler_sink(ROUTE, handle)):
        for start in range(0, number, BATCH):
            await _put(parts, drafts[start : start + BATCH])
        await _settled(parts, before, number)
    _, cpu = watch.stop()
    late = _timed(f"lateness at {plan.rate:,}/s", plan.rate, cpu, lates, "nothing: it kept up")
    early = sum(each < 0 for each in lates)
    behind = late.p99 is not None and late.p99 > 1_000
    return msgspec.structs.replace(
        late, early=early, limit=_store_limit(cpu) if behind else late.limit
    )


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
    """Wait until so many more are delivered, or nothing has moved for long; how many are."""
    moved = time.monotonic()
    last = -1
    while True:
        done = parts.observer.counts.get(("delivered", ROUTE), 0) - before
        if done >= number:
            return done
        if done != last:
            last, moved = done, time.monotonic()
        elif time.monotonic() - moved > PATIENCE:
            return done
        await asyncio.sleep(0.005)


def sink_limit(rate: float, claims: Result) -> str:
    """What held deliveries back, seeing how fast claims alone were."""
    return "the sink" if rate < SLOWER * claims.rate else claims.limit


def _store_limit(cpu: float) -> str:
    return "this process's core" if cpu >= BUSY else "waiting for the store"


def _timed(what: str, rate: float, cpu: float, took: Sequence[float], limit: str) -> Result:
    ordered = sorted(took)
    last = len(ordered) - 1
    return Result(
        what=what,
        rate=rate,
        cpu=cpu,
        limit=limit,
        p50=ordered[last // 2],
        p99=ordered[int(last * 0.99)],
        max=ordered[last],
    )
