"""One process: parts opened, one signal handler, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.cli import show
from penstock.cli.loop import loop_factory
from penstock.cli.session import FAILED
from penstock.contrib import load, mounted, mounts
from penstock.model.errors import ConfigError, StoreUnavailable, missing_extra
from penstock.model.fleet import Role
from penstock.ports.store import Store
from penstock.rooms.parts import RoomParts
from penstock.settings import OFF, Examined, Settings
from penstock.telemetry.logs import setup_logging
from penstock.telemetry.rates import DELIVERED, Rates
from penstock.telemetry.tracing import set_up_tracing, tracer
from penstock.version import __version__
from penstock.wiring import (
    Parts,
    on_server,
    open_parts,
    open_rooms,
    open_sources,
    open_store,
    open_worker,
    put_configured,
)

if TYPE_CHECKING:
    from penstock.api.grpc.server import GrpcServer
    from penstock.api.grpc.service import Beside as GrpcBeside
    from penstock.api.grpc.service import Scheduler
    from penstock.api.http.scrape import ScrapeServer
    from penstock.api.http.server import HttpServer
    from penstock.flow.worker import Worker

log = logging.getLogger("penstock.process")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ANSWER_SECONDS = 0.5
"""After a failed store, so that waiting callers still get their answer."""
COLLECT_AT = (10_000, 20, 50)
"""New objects, then rounds, after which the garbage collector looks."""
ROUTES_SHOWN = 8
"""Routes that the start names; a fleet may have hundreds."""
JSON = "-H 'content-type: application/json'"
BEARER = '-H "authorization: Bearer $PENSTOCK_TOKEN" '


@dataclass(frozen=True, slots=True)
class Roles:
    """What this process does."""

    api: bool
    worker: bool
    insecure: bool = False

    @property
    def name(self) -> Role:
        """What the others on the store know it as."""
        if self.api and self.worker:
            return "serve"
        return "api" if self.api else "worker"


Beside: TypeAlias = Callable[[str], Coroutine[object, object, None]]
"""Something that runs beside the API, given its address, until the process stops."""


def run_process(
    settings: Settings,
    roles: Roles,
    *,
    json: bool = False,
    found: Examined | None = None,
    beside: Beside | None = None,
) -> None:
    """Until SIGINT or SIGTERM: then stop claiming and accepting, finish what is in flight.

    A second signal ends it at once; what was acknowledged is in the store either way. `found`:
    where the settings were read from, and what may be wrong with them.
    """
    logs = settings.log
    handler = setup_logging(logs.level, logs.format, logs.file)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and stop are told here
    end_tracing = None
    try:
        end_tracing = set_up_tracing()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            calls_left = runner.run(_run(settings, roles, json=json, found=found, beside=beside))
            if calls_left:
                _end_with_threads(end_tracing, handler)
    finally:
        if end_tracing is not None:
            end_tracing()
        handler.close()


def _end_with_threads(end_tracing: Callable[[], None] | None, handler: logging.Handler) -> None:
    """End at once, whatever threads still run: Python would wait for them, maybe for ever."""
    if end_tracing is not None:
        end_tracing()
    handler.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _run(
    settings: Settings,
    roles: Roles,
    *,
    json: bool,
    found: Examined | None,
    beside: Beside | None,
) -> bool:
    """Until it is asked to stop; whether calls of handlers are still running then."""
    _warn("settings", () if found is None else found.warnings)
    stopping = asyncio.Event()
    _on_signals(stopping)
    async with AsyncExitStack() as stack:
        store = await _open_patiently(settings, stopping)
        if store is None:
            return False
        stack.push_async_callback(store.close)
        _warn(store.name, store.warnings)
        parts = await stack.enter_async_context(open_parts(settings, store=store, role=roles.name))
        parts.observer.tracer = tracer()
        await put_configured(parts)
        opened = open_worker(parts, leave_calls=True)
        worker = await stack.enter_async_context(opened) if roles.worker else None
        ingests = await stack.enter_async_context(open_sources(parts)) if roles.worker else []
        rooms = await stack.enter_async_context(open_rooms(parts))
        server = _bound_server(parts, worker, rooms, roles) if roles.api else None
        rpc = _bound_grpc(parts, roles) if roles.api else None
        metrics = None if server is None else f"{server.url}/metrics"
        if scrape := _scrape_server(parts, worker, rooms, roles):
            metrics = (await stack.enter_async_context(scrape)).url
        await stack.enter_async_context(parts.fleet.joined(worker, metrics))
        _spare_the_collector()
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(_end_when_failed(store))]
            if worker is not None:
                group.create_task(worker.run())
                helpers += [group.create_task(ingest.run()) for ingest in ingests]
                rates = Rates(parts.observer, parts.store.clock, what=_delivered(settings))
                helpers.append(group.create_task(rates.run()))
                if rooms is not None:
                    helpers.append(group.create_task(rooms.run()))
            if server is not None:
                group.create_task(server.run())
                if beside is not None:
                    helpers.append(group.create_task(beside(server.url)))
            if rpc is not None:
                group.create_task(rpc.run())
            file = None if found is None else found.file
            _announce(server, rpc, parts, roles, metrics, file, json=json)
            await stopping.wait()
            log.info("stopping: no more is claimed or accepted, what is in flight is finished")
            for helper in helpers:
                helper.cancel()
            if server is not None:
                server.stop()
            if rpc is not None:
                rpc.stop()
            if worker is not None:
                worker.stop()
    log.info("stopped")
    return worker is not None and worker.calls_left


def _spare_the_collector() -> None:
    """What is there now stays: looking through all of it takes longer than a message may be late.

    A batch makes thousands of objects that live for milliseconds; looked at seven hundred at a
    time, as is usual, most of them are still in use and are looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)


def _bound_server(
    parts: Parts, worker: Worker | None, rooms: RoomParts | None, roles: Roles
) -> HttpServer:
    """Bind the port before anything is claimed: a port that is taken ends the process here."""
    from penstock.api.http.server import HttpServer

    server = HttpServer(
        parts, worker, rooms=rooms, insecure=roles.insecure, mounts=mounts(parts.settings)
    )
    server.bind()
    return server


def _bound_grpc(parts: Parts, roles: Roles) -> GrpcServer | None:
    """The gRPC server, bound; None when it is off, or cannot be served and no setting names it."""
    if parts.settings.api.grpc == OFF:
        return None
    try:
        return _grpc(parts, roles)
    except ConfigError as exc:
        if "grpc" in parts.settings.api.model_fields_set:
            raise
        # No setting names an address: gRPC is served only if that costs nothing.
        level = logging.DEBUG if isinstance(exc.__cause__, ImportError) else logging.WARNING
        log.log(level, "gRPC is not served: %s", exc)
        return None


def _grpc(parts: Parts, roles: Roles) -> GrpcServer:
    try:
        from penstock.api.grpc.server import GrpcServer
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("penstock"):
            raise
        raise missing_extra("api.grpc", "grpc") from exc
    server = GrpcServer(parts, insecure=roles.insecure, beside=_grpc_services(parts.settings))
    server.bind()
    return server


def _grpc_services(settings: Settings) -> list[Callable[[Scheduler], GrpcBeside]]:
    """What is answered beside our own service: nothing, unless the settings turn it on."""
    return [load(one.grpc) for one in mounted(settings) if one.grpc is not None]


def _delivered(settings: Settings) -> str:
    """What the log calls deliveries a second."""
    words = [one.rate for one in mounted(settings) if one.rate is not None]
    return words[0] if words else DELIVERED


def _scrape_server(
    parts: Parts, worker: Worker | None, rooms: RoomParts | None, roles: Roles
) -> ScrapeServer | None:
    """A port for Prometheus, when the settings of this role say so."""
    from penstock.api.http.scrape import ScrapeServer

    role = "api" if roles.api else "worker"
    where = getattr(parts.settings, role).metrics
    if where is None:
        return None
    return ScrapeServer(
        where,
        f"{role}.metrics",
        parts,
        worker,
        rooms,
        insecure=roles.insecure,
        mounts=mounts(parts.settings),
    )


async def _open_patiently(settings: Settings, stopping: asyncio.Event) -> Store | None:
    """Wait for a store whose server is not there yet, until asked to stop.

    A file that cannot be opened is an error at once.
    """
    while not stopping.is_set():
        try:
            return await open_store(settings)
        except StoreUnavailable as exc:
            if not on_server(settings):
                raise
            log.warning("the store cannot be reached, retrying: %s", exc)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), exc.retry_after)
    return None


def _warn(subject: str, warnings: Sequence[str]) -> None:
    """Log what an operator should change, though everything works."""
    for warning in warnings:
        log.warning("%s: %s", subject, warning)


async def _end_when_failed(store: Store) -> None:
    """End the process when its store fails for good: nothing it would still do could be stored.

    Nothing is closed, so that the next start finds the file as the failure left it.
    """
    if store.may_fail is None:
        return
    failure = await store.may_fail.failure()
    log.critical("%s; this process ends now", failure)
    await asyncio.sleep(ANSWER_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(FAILED)


def _on_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if not stopping.is_set():
            stopping.set()
            return
        log.warning("stopping at once: a second signal came")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)


def _announce(
    server: HttpServer | None,
    rpc: GrpcServer | None,
    parts: Parts,
    roles: Roles,
    metrics: str | None,
    file: Path | None,
    *,
    json: bool,
) -> None:
    """Where it listens, what it works on and a line to try; on stdout, since logs are on stderr."""
    store, secured = show.full_address(parts.store.name), bool(parts.settings.api.tokens)
    url = None if server is None else server.url
    sinks = parts.sinks
    if json:
        started = {"event": "started", "version": __version__, "url": url, "store": store}
        show.as_json(
            {
                **started,
                "grpc": None if rpc is None else rpc.address,
                "settings": None if file is None else str(file.absolute()),
                "routes": sinks,
                "worker": roles.worker,
                "metrics": metrics,
            }
        )
        return
    lines = [
        f"Penstock {__version__} holds messages in {store}",
        f"  settings   {'defaults (no penstock.toml here)' if file is None else file.absolute()}",
        *_routes(sinks),
    ]
    if url is not None:
        body = '{"payload": {"hello": "later"}, "delay": "5s"}'
        lines += [
            f"  dashboard  {url}/",
            f"  API docs   {url}/docs",
            f"  try it     curl -s {url}/v1/messages {BEARER if secured else ''}{JSON} -d '{body}'",
        ]
    elif metrics is not None:
        lines.append(f"  metrics    {metrics}")
    if rpc is not None:
        lines.append(f"  gRPC       {rpc.address} ({', '.join(rpc.services)})")
    if not roles.worker:
        lines.append("  no worker here: start one with `penstock worker`")
    show.as_text(*lines)


def _routes(sinks: Mapping[str, str]) -> list[str]:
    shown = [f"{name} → {sink}" for name, sink in list(sinks.items())[:ROUTES_SHOWN]]
    if len(sinks) > ROUTES_SHOWN:
        shown.append(f"and {len(sinks) - ROUTES_SHOWN} more: penstock route list")
    return [f"  {'routes' if i == 0 else '':<9}  {line}" for i, line in enumerate(shown)]
