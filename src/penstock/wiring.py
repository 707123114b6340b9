"""The composition root: settings → parts. The only place that knows every driver.

A driver is imported when its scheme is first named, so one whose extra is not installed costs
nothing until then. Adding a store or a sink is one line in these tables.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from penstock.flow.control import Control
from penstock.flow.fleet import Fleet
from penstock.flow.formats import FORMATS, RECORDS
from penstock.flow.hop import Admitter, Announcer
from penstock.flow.ingest import BATCH, Ingest
from penstock.flow.intake import Intake, Put
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.flow.status import Status
from penstock.flow.worker import Worker
from penstock.model.errors import ConfigError
from penstock.model.fleet import ProcessName, Role
from penstock.model.route import Route
from penstock.model.zone import DEFAULT_ZONE
from penstock.ports.policies import PolicyStore
from penstock.ports.rooms import RoomHost, RoomStore
from penstock.ports.sink import Sink, SinkOptions
from penstock.ports.source import Source, SourceOptions
from penstock.ports.store import AdmittingStore, MessageStore
from penstock.rooms.dispatch import Dispatcher
from penstock.rooms.enter import Enter
from penstock.rooms.join import Join
from penstock.rooms.leave import Leave
from penstock.rooms.operate import Operate
from penstock.rooms.parts import RoomParts
from penstock.rooms.promote import Promoter
from penstock.rooms.wait import Wait
from penstock.settings import RouteSettings, Settings, SourceSettings
from penstock.settings_secrets import redact
from penstock.tokens import MIN_KEY, JwtSigner, SigningKey
from penstock.version import __version__

STORES = {
    # scheme: (module, extra). A module has `async def open_store(url, **options) -> MessageStore`
    # and `def nothing_to_read(url) -> str | None`, which checks the URL and says why a look into
    # the store would find nothing but a store made by looking. One that can keep a store in
    # memory has `def in_memory(url) -> bool` too, and one that must be made before it is used
    # `async def init_store(url) -> str`.
    "sqlite": ("penstock.stores.sqlite", None),
    "redis": ("penstock.stores.redis", "redis"),
    "rediss": ("penstock.stores.redis", "redis"),
    "redis+cluster": ("penstock.stores.redis", "redis"),
    "rediss+cluster": ("penstock.stores.redis", "redis"),
    "redis+unix": ("penstock.stores.redis", "redis"),
    "unix": ("penstock.stores.redis", "redis"),
    "dynamodb+redis": ("penstock.stores.dynamodb", "dynamodb"),
}
SINKS = {
    # scheme: (module with `async def open_sink(url, options: SinkOptions) -> Sink`, extra)
    "log": ("penstock.sinks.log", None),
    "http": ("penstock.sinks.webhook", None),
    "https": ("penstock.sinks.webhook", None),
    "python": ("penstock.sinks.python", None),
    "kafka": ("penstock.sinks.kafka", "kafka"),
    "rabbitmq": ("penstock.sinks.rabbitmq", "rabbitmq"),
    "amqp": ("penstock.sinks.rabbitmq", "rabbitmq"),
    "amqps": ("penstock.sinks.rabbitmq", "rabbitmq"),
    "nats": ("penstock.sinks.nats", "nats"),
    "tls": ("penstock.sinks.nats", "nats"),
    "redis": ("penstock.sinks.redis_streams", "redis"),
    "rediss": ("penstock.sinks.redis_streams", "redis"),
}
SOURCES = {
    # scheme: (module with `async def open_source(url, options: SourceOptions) -> Source`, extra)
    "kafka": ("penstock.sources.kafka", "kafka"),
    "rabbitmq": ("penstock.sources.rabbitmq", "rabbitmq"),
    "amqp": ("penstock.sources.rabbitmq", "rabbitmq"),
    "amqps": ("penstock.sources.rabbitmq", "rabbitmq"),
    "nats": ("penstock.sources.nats", "nats"),
    "tls": ("penstock.sources.nats", "nats"),
}

LOGIN = (
    "username",
    "password",
    "sasl",
    "creds",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_verify",
)
"""Settings of a source that say who we are and whom we trust."""


HOP_TIMEOUT = 2.0
"""Seconds a caller waits for the intake topic at most, before ids go to the store directly."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything one process works with."""

    settings: Settings
    store: MessageStore
    observer: Observer
    intake: Intake
    control: Control
    routes: Mapping[str, Route]
    fleet: Fleet
    """This process among the others on the store."""
    policies: Policies | None = None
    """None: this store cannot keep any."""
    any_route: bool = False
    """Names that are not configured are accepted too, for another process to serve."""

    def status(self) -> Status:
        """How things stand, with the routes of these settings."""
        sinks = {name: redact(route.sink) for name, route in self.settings.all_routes().items()}
        return Status(self.store, self.fleet, sinks, version=__version__)


async def open_store(settings: Settings) -> MessageStore:
    driver = _driver(STORES, settings.store, "store")
    store: MessageStore = await driver.open_store(
        settings.store,
        total_partitions=settings.worker.total_partitions,
        retention=settings.limits.retention,
        retention_count=settings.limits.retention_count,
        bucket_size_sec=settings.worker.bucket_size_sec,
    )
    return store


def nothing_to_read(settings: Settings) -> str | None:
    """Why only a command that writes may open this store now; None: it may be read."""
    driver = _driver(STORES, settings.store, "store")
    reason: str | None = driver.nothing_to_read(settings.store)
    return reason


async def init_store(settings: Settings) -> str:
    """Make what the store needs before it is opened; says what was done."""
    driver = _driver(STORES, settings.store, "store")
    init = getattr(driver, "init_store", None)
    if init is None:
        return f"{redact(settings.store)} makes itself when it is first used"
    done: str = await init(settings.store)
    return done


def in_memory(settings: Settings) -> bool:
    """Whether the store ends with the process that opens it."""
    asked = getattr(_driver(STORES, settings.store, "store"), "in_memory", None)
    return asked is not None and bool(asked(settings.store))


@asynccontextmanager
async def scratch_store(settings: Settings) -> AsyncIterator[Settings]:
    """The same settings with a store of their own beside the configured one, erased in the end."""
    driver = _driver(STORES, settings.store, "store")
    scratch_url = getattr(driver, "scratch_url", None)
    if scratch_url is None:
        scheme = settings.store.partition(":")[0]
        raise ConfigError(f"store: {scheme}:// has no place to try things in beside the real one")
    url = scratch_url(settings.store, f"bench-{secrets.token_hex(4)}")
    try:
        yield settings.model_copy(update={"store": url})
    finally:
        await driver.erase(url)


async def driver_problems(settings: Settings) -> list[str]:
    """What is wrong with the addresses of the store and the sinks; reaches and makes nothing."""
    problems: list[str] = []
    try:
        nothing_to_read(settings)
    except ConfigError as exc:
        problems.append(exc.message)
    for name, options in settings.all_routes().items():
        try:
            sink = await open_sink(name, options)
        except ConfigError as exc:
            problems.append(exc.message)
        else:
            await sink.close()
    for name, source in settings.sources.items():
        try:
            async with _source_parts(name, source):
                pass
        except ConfigError as exc:
            problems.append(exc.message)
    if settings.intake_topic is not None:
        try:
            await (await _intake_sink(settings.intake_topic)).close()
            await (await _intake_source(settings.intake_topic)).close()
        except ConfigError as exc:
            problems.append(exc.message)
    return problems


async def open_sink(name: str, options: RouteSettings) -> Sink:
    driver = _driver(SINKS, options.sink, f"routes.{name}.sink")
    sink: Sink = await driver.open_sink(options.sink, options.as_sink_options(name))
    if options.format == "decision-batch":
        sink = import_module("penstock.sinks.packed").PackedSink(sink)
    return sink


def handler_sink(name: str, handler: Callable[..., object]) -> Sink:
    """A sink that calls a function of the program Penstock runs in."""
    sink: Sink = import_module("penstock.sinks.python").python_sink(handler, name)
    return sink


@asynccontextmanager
async def open_parts(
    settings: Settings,
    *,
    any_route: bool = False,
    store: MessageStore | None = None,
    role: Role = "embedded",
) -> AsyncIterator[Parts]:
    """Open the store and what stands on it; close them in the end."""
    async with AsyncExitStack() as stack:
        if store is None:
            store = await open_store(settings)
            stack.push_async_callback(store.close)
        _check_payload(settings, store)
        observer = Observer(time.perf_counter)
        routes = {name: part.as_route(name) for name, part in settings.all_routes().items()}
        intake = Intake(
            store,
            observer,
            routes=None if any_route else frozenset(routes),
            max_payload=settings.limits.max_payload,
            min_delay=settings.limits.min_delay,
            max_delay=settings.limits.max_delay,
            put=await _announcing(settings, store, stack),
        )
        stack.push_async_callback(intake.drain)
        yield Parts(
            settings=settings,
            store=store,
            observer=observer,
            intake=intake,
            control=Control(store, observer),
            policies=policies_of(store, settings.limits.zone),
            routes=routes,
            fleet=Fleet(store, observer, name=_process(), role=role, version=__version__),
            any_route=any_route,
        )


async def _announcing(settings: Settings, store: MessageStore, stack: AsyncExitStack) -> Put | None:
    """With an intake topic: how messages are put, so that it is told of them."""
    if settings.intake_topic is None:
        return None
    if not isinstance(store, AdmittingStore):
        raise ConfigError(
            f"intake_topic: ids take this way only with dynamodb+redis://; {store.name} keeps them"
            " with its messages"
        )
    sink = await _intake_sink(settings.intake_topic)
    stack.push_async_callback(sink.close)
    return Announcer(store, sink).put


async def _intake_sink(url: str) -> Sink:
    _driver(SOURCES, url, "intake_topic")  # it is read, too
    driver = _driver(SINKS, url, "intake_topic")
    options = SinkOptions(at="intake_topic", timeout=HOP_TIMEOUT, more={"create_topic": True})
    sink: Sink = await driver.open_sink(url, options)
    return sink


async def _intake_source(url: str) -> Source:
    driver = _driver(SOURCES, url, "intake_topic")
    options = SourceOptions(source="intake_topic", more={"create_topic": True})
    source: Source = await driver.open_source(url, options)
    return source


def _process() -> ProcessName:
    return ProcessName(socket.gethostname(), os.getpid(), secrets.token_hex(4))


async def put_configured_policies(parts: Parts) -> None:
    """What the settings say of policies binds from the start; others in the store stay."""
    if parts.policies is not None:
        await parts.policies.begin(*parts.settings.all_rules())
    elif any(parts.settings.all_rules()):
        raise ConfigError(f"policies: the store {parts.store.name} keeps none")


def policies_of(store: MessageStore, zone: str = DEFAULT_ZONE) -> Policies | None:
    """The rules kept in this store; None: it cannot keep any."""
    policies: PolicyStore | None = getattr(store, "policies", None)
    if policies is None:
        return None
    policies.use_zone(zone)
    return Policies(policies, store.clock)


@asynccontextmanager
async def open_worker(
    parts: Parts, sinks: Mapping[str, Sink] | None = None
) -> AsyncIterator[Worker]:
    """A worker for every configured route, its sinks opened; `sinks` replaces some of them."""
    given = sinks or {}
    async with AsyncExitStack() as stack:
        lanes: dict[str, tuple[Route, Sink]] = {}
        _check_keyed(parts)
        for name, options in parts.settings.all_routes().items():
            sink = given[name] if name in given else await open_sink(name, options)
            if name not in given:
                stack.push_async_callback(sink.close)
            lanes[name] = (parts.routes[name], sink)
        worker = parts.settings.worker
        yield Worker(
            parts.store,
            lanes,
            parts.observer,
            batch_size=worker.batch_size,
            lease=worker.lease,
            shutdown=worker.shutdown,
            policies=parts.policies,
        )


@asynccontextmanager
async def open_sources(parts: Parts) -> AsyncIterator[list[Ingest | Admitter]]:
    """What takes messages, or ids of them, from brokers into the store; closed in the end."""
    async with AsyncExitStack() as stack:
        ingests: list[Ingest | Admitter] = []
        topic, store = parts.settings.intake_topic, parts.store
        if topic is not None and isinstance(store, AdmittingStore):
            ids = await _intake_source(topic)
            stack.push_async_callback(ids.close)
            ingests.append(Admitter(store, ids, parts.store.clock))
        for name, options in parts.settings.sources.items():
            opened = await stack.enter_async_context(_source_parts(name, options))
            source, dead_letter = opened
            ingests.append(
                Ingest(
                    name,
                    source,
                    FORMATS[options.format],
                    parts.intake,
                    parts.store.clock,
                    parts.observer,
                    route=options.route,
                    dead_letter=dead_letter,
                    batch=options.batch or RECORDS.get(options.format, BATCH),
                )
            )
        yield ingests


@asynccontextmanager
async def _source_parts(
    name: str, options: SourceSettings
) -> AsyncIterator[tuple[Source, Sink | None]]:
    """The source and its dead letter, whose timeouts and the like are a route's defaults."""
    async with AsyncExitStack() as stack:
        driver = _driver(SOURCES, options.from_, f"sources.{name}.from")
        source: Source = await driver.open_source(options.from_, options.as_source_options(name))
        stack.push_async_callback(source.close)
        dead_letter: Sink | None = None
        if options.dead_letter is not None:
            dead_letter = await _dead_letter(options, options.dead_letter, name)
            stack.push_async_callback(dead_letter.close)
        yield source, dead_letter


async def _dead_letter(source: SourceSettings, url: str, name: str) -> Sink:
    """At the source's own broker it logs in by the source's settings."""
    where = f"sources.{name}.dead_letter"
    driver = _driver(SINKS, url, where)
    _, extra = SINKS[urlsplit(url).scheme]
    # A broker's is made when it is not there: a record without any place to go would be lost.
    more: dict[str, object] = {"create_topic": True} if extra is not None else {}
    if _broker(url) == _broker(source.from_):
        given = source.model_extra or {}
        more |= {login: given[login] for login in LOGIN if login in given}
    sink: Sink = await driver.open_sink(url, SinkOptions(at=where, more=more))
    return sink


def _broker(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


@asynccontextmanager
async def open_rooms(parts: Parts) -> AsyncIterator[RoomParts | None]:
    """Waiting rooms on the same store; None when it cannot keep any."""
    if not isinstance(parts.store, RoomHost):
        yield None
        return
    settings = parts.settings.rooms
    instance = settings.instance or socket.gethostname()
    consumer = f"{instance}-{os.getpid()}-{secrets.token_hex(4)}"
    opened = await parts.store.open_rooms(settings.capacity, consumer)
    try:
        signer = await _signer(parts.settings, opened.store)
        store, observer = opened.store, parts.observer
        yield RoomParts(
            store=store,
            join=Join(store, signer, observer, instance),
            wait=Wait(store, signer),
            enter=Enter(store, signer, observer),
            leave=Leave(store, observer),
            operate=Operate(store, settings.capacity),
            promoter=Promoter(store, observer, workers=settings.workers, queue=settings.queue),
            dispatcher=None
            if opened.entries is None
            else Dispatcher(
                store,
                opened.entries,
                signer,
                observer,
                batch=settings.batch,
                poll=settings.poll,
                abandoned=settings.take_over,
            ),
            away=opened.away,
            calls=opened.figures,
        )
    finally:
        await opened.close()


async def _signer(settings: Settings, store: RoomStore) -> JwtSigner:
    keys = [
        SigningKey(key.kid, key.secret.get_secret_value().encode()) for key in settings.rooms.keys
    ]
    if not keys:
        keys = [SigningKey("store", await store.secret(secrets.token_bytes(MIN_KEY)))]
    return JwtSigner(keys, settings.rooms.issuer)


def _check_payload(settings: Settings, store: MessageStore) -> None:
    """Said at start, and not to the caller whose message turns out not to fit."""
    most: int | None = getattr(store, "max_payload", None)
    if most is not None and settings.limits.max_payload > most:
        raise ConfigError(f"limits.max_payload: the store {store.name} takes {most:,} bytes")


def _check_keyed(parts: Parts) -> None:
    for name, route in parts.routes.items():
        if route.per_key is not None and not hasattr(parts.store, "claim_keyed"):
            raise ConfigError(
                f"routes.{name}: ordered and max_in_flight_per_key need a store that keeps turns;"
                f" {parts.store.name} does not"
            )


def _driver(table: Mapping[str, tuple[str, str | None]], url: str, field: str) -> Any:
    scheme = urlsplit(url).scheme
    if scheme not in table:
        known = ", ".join(sorted(table))
        raise ConfigError(f"{field}: no driver for {scheme or url!r}; known schemes: {known}")
    module, extra = table[scheme]
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        if extra is None or (exc.name or "").startswith("penstock."):
            raise
        raise ConfigError(
            f"{field}: {scheme}:// needs the {extra!r} extra: pip install 'penstock[{extra}]'"
        ) from exc
