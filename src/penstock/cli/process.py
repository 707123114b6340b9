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
    from penstock.cli.place import Place
    from penstock.flow.hop import Admitter
    from penstock.flow.ingest import Ingest
    from penstock.flow.worker import Worker

log = logging.getLogger("penstock.process")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ANSWER_SECONDS = 0.5
"""Time for waiting callers to get their answer after the store has failed."""
COLLECT_AT = (10_000, 20, 50)
"""New objects, then rounds, after which the garbage collector looks."""
ROUTES_SHOWN = 8
"""Routes that the start names; a fleet may have hundreds."""
JSON = "-H 'content-type: application/json'"
BEARER = '-H "authorization: Bearer $PENSTOCK_TOKEN" '


@dataclass(frozen=True, slots=True)
class Roles:
    """The parts of a server that this process runs."""

    api: bool
    worker: bool
    insecure: bool = False

    @property
    def name(self) -> Role:
        """The name under which other processes on the store see it."""
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
    place: Place | None = None,
) -> None:
    """Run until SIGINT or SIGTERM: then stop claiming and accepting, finish what is in flight.

    A second signal ends it at once; acknowledged messages are in the store either way. `found`:
    where the settings were read from, and their warnings. `place`: the process is one of several
    that share the ports of the API.
    """
    logs = settings.log
    number = None if place is None else place.number
    handler = setup_logging(logs.level, logs.format, logs.file, process=number)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and stop are logged here
    end_tracing = None
    try:
        end_tracing = set_up_tracing()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            calls_left = runner.run(
                _run(settings, roles, json=json, found=found, beside=beside, place=place)
            )
            if calls_left:
                _end_with_threads(end_tracing, handler)
    finally:
        if end_tracing is not None:
            end_tracing()
        handler.close()


def _end_with_threads(end_tracing: Callable[[], None] | None, handler: logging.Handler) -> None:
    """End at once, whatever threads still run: Python would wait for them, perhaps without end."""
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
    place: Place | None,
) -> bool:
    """Run until a signal; True if calls of handlers are still running then."""
    speaks = place is None or place.number == 1  # for all of them
    _warn("settings", found.warnings if found is not None and speaks else ())
    stopping = asyncio.Event()
    _on_signals(stopping)
    async with AsyncExitStack() as stack:
        if place is not None:
            await stack.enter_async_context(place.joined(stopping))
        store = await _open_patiently(settings, stopping)
        if store is None:
            return False
        stack.push_async_callback(store.close)
        _warn(store.name, store.warnings if speaks else ())
        opened = await _opened(stack, settings, store, roles, place)
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(_end_when_failed(store)), *opened.start(group)]
            if opened.server is not None and beside is not None:
                helpers.append(group.create_task(beside(opened.server.url)))
            file = None if found is None else found.file
            _announce(_Started(opened, roles, file), place, json=json)
            await stopping.wait()
            log.info("stopping: no more is claimed or accepted, what is in flight is finished")
            for helper in helpers:
                helper.cancel()
            opened.stop()
    log.info("stopped")
    return opened.worker is not None and opened.worker.calls_left


@dataclass(frozen=True, slots=True)
class _Opened:
    """The parts that run in this process."""

    parts: Parts
    worker: Worker | None
    ingests: Sequence[Ingest | Admitter]
    rooms: RoomParts | None
    server: HttpServer | None
    rpc: GrpcServer | None
    metrics: str | None
    """The address that Prometheus scrapes."""

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start everything; the tasks that are to be cancelled when the process stops."""
        helpers: list[asyncio.Task[None]] = []
        if self.worker is not None:
            group.create_task(self.worker.run())
            helpers += [group.create_task(ingest.run()) for ingest in self.ingests]
            parts = self.parts
            rates = Rates(parts.observer, parts.store.clock, what=_delivered(parts.settings))
            helpers.append(group.create_task(rates.run()))
            if self.rooms is not None:
                helpers.append(group.create_task(self.rooms.run()))
        for server in (self.server, self.rpc):
            if server is not None:
                group.create_task(server.run())
        return helpers

    def stop(self) -> None:
        for one in (self.server, self.rpc, self.worker):
            if one is not None:
                one.stop()


async def _opened(
    stack: AsyncExitStack, settings: Settings, store: Store, roles: Roles, place: Place | None
) -> _Opened:
    """Open every part and take every port; closed with the stack."""
    parts = await stack.enter_async_context(open_parts(settings, store=store, role=roles.name))
    parts.observer.tracer = tracer()
    await put_configured(parts)
    opening = open_worker(parts, leave_calls=True)
    worker = await stack.enter_async_context(opening) if roles.worker else None
    ingests = await stack.enter_async_context(open_sources(parts)) if roles.worker else []
    rooms = await stack.enter_async_context(open_rooms(parts))
    server = _bound_server(parts, worker, rooms, roles, place) if roles.api else None
    rpc = _bound_grpc(parts, roles, shared=place is not None) if roles.api else None
    metrics = None if server is None else f"{server.url}/metrics"
    if scrape := _scrape_server(parts, worker, rooms, roles):
        metrics = (await stack.enter_async_context(scrape)).url
    await stack.enter_async_context(parts.fleet.joined(worker, metrics))
    spare_the_collector()
    return _Opened(parts, worker, ingests, rooms, server, rpc, metrics)


def spare_the_collector() -> None:
    """Exempt everything allocated so far from garbage collection: a scan of all of it takes longer
    than a message may be late.

    A batch makes thousands of objects that live for milliseconds; scanned seven hundred at a time,
    the default, most of them are still in use and are scanned again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)


def _bound_server(
    parts: Parts,
    worker: Worker | None,
    rooms: RoomParts | None,
    roles: Roles,
    place: Place | None,
) -> HttpServer:
    """Bind the port before anything is claimed: a port that is taken ends the process here."""
    from penstock.api.http.server import HttpServer

    server = HttpServer(
        parts,
        worker,
        rooms=rooms,
        insecure=roles.insecure,
        mounts=mounts(parts.settings),
        listener=None if place is None else place.listener,
        everyone=None if place is None else place.everyone,
    )
    server.bind()
    if place is not None:
        place.families = server.api.families
    return server


def _bound_grpc(parts: Parts, roles: Roles, *, shared: bool) -> GrpcServer | None:
    """The gRPC server, bound; None when it is off, or cannot be served and no setting names it."""
    if parts.settings.api.grpc == OFF:
        return None
    try:
        return _grpc(parts, roles, shared=shared)
    except ConfigError as exc:
        if "grpc" in parts.settings.api.model_fields_set:
            raise
        # No setting names an address: gRPC is served only if that costs nothing.
        level = logging.DEBUG if isinstance(exc.__cause__, ImportError) else logging.WARNING
        log.log(level, "gRPC is not served: %s", exc)
        return None


def _grpc(parts: Parts, roles: Roles, *, shared: bool) -> GrpcServer:
    try:
        from penstock.api.grpc.server import GrpcServer
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("penstock"):
            raise
        raise missing_extra("api.grpc", "grpc") from exc
    server = GrpcServer(
        parts, insecure=roles.insecure, beside=_grpc_services(parts.settings), shared=shared
    )
    server.bind()
    return server


def _grpc_services(settings: Settings) -> list[Callable[[Scheduler], GrpcBeside]]:
    """The gRPC services beside our own: none, unless the settings turn them on."""
    return [load(one.grpc) for one in mounted(settings) if one.grpc is not None]


def _delivered(settings: Settings) -> str:
    """The name for deliveries per second in the log."""
    words = [one.rate for one in mounted(settings) if one.rate is not None]
    return words[0] if words else DELIVERED


def _scrape_server(
    parts: Parts, worker: Worker | None, rooms: RoomParts | None, roles: Roles
) -> ScrapeServer | None:
    """The port for Prometheus, if the settings of this role name one."""
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
    """Open the store, waiting for a server that is not up yet, until stopped.

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
    """Log advice for the operator about a working part."""
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


def _announce(started: _Started, place: Place | None, *, json: bool) -> None:
    """Print the start once: where several processes share the ports, their parent does."""
    if place is not None:
        place.ready(started.lines(), started.facts())
    elif json:
        show.as_json(started.facts())
    else:
        show.as_text(*started.lines())


@dataclass(frozen=True, slots=True)
class _Started:
    """The addresses and parts of a started process, for stdout: logs are on stderr."""

    opened: _Opened
    roles: Roles
    file: Path | None

    @property
    def store(self) -> str:
        return show.full_address(self.opened.parts.store.name)

    @property
    def url(self) -> str | None:
        return None if self.opened.server is None else self.opened.server.url

    def facts(self) -> dict[str, object]:
        """The facts for machines."""
        return {
            "event": "started",
            "version": __version__,
            "url": self.url,
            "store": self.store,
            "grpc": None if self.opened.rpc is None else self.opened.rpc.address,
            "settings": None if self.file is None else str(self.file.absolute()),
            "routes": self.opened.parts.sinks,
            "worker": self.roles.worker,
            "metrics": self.opened.metrics,
        }

    def lines(self) -> list[str]:
        """The lines for people, with a command to try."""
        url, rpc = self.url, self.opened.rpc
        file = "defaults (no penstock.toml here)" if self.file is None else self.file.absolute()
        found = [
            f"Penstock {__version__} holds messages in {self.store}",
            f"  settings   {file}",
            *_routes(self.opened.parts.sinks),
        ]
        if url is not None:
            bearer = BEARER if self.opened.parts.settings.api.tokens else ""
            body = '{"payload": {"hello": "later"}, "delay": "5s"}'
            found += [
                f"  dashboard  {url}/",
                f"  API docs   {url}/docs",
                f"  try it     curl -s {url}/v1/messages {bearer}{JSON} -d '{body}'",
            ]
        elif self.opened.metrics is not None:
            found.append(f"  metrics    {self.opened.metrics}")
        if rpc is not None:
            found.append(f"  gRPC       {rpc.address} ({', '.join(rpc.services)})")
        if not self.roles.worker:
            found.append("  no worker here: start one with `penstock worker`")
        return found


def _routes(sinks: Mapping[str, str]) -> list[str]:
    shown = [f"{name} → {sink}" for name, sink in list(sinks.items())[:ROUTES_SHOWN]]
    if len(sinks) > ROUTES_SHOWN:
        shown.append(f"and {len(sinks) - ROUTES_SHOWN} more: penstock route list")
    return [f"  {'routes' if i == 0 else '':<9}  {line}" for i, line in enumerate(shown)]
