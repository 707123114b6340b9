"""The tree of settings: every part with its defaults, validated on its own."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from penstock.model.backoff import Backoff, parse_backoff
from penstock.model.errors import PenstockError
from penstock.model.identity import DEFAULT_PARTITIONS
from penstock.model.message import DEFAULT_ROUTE, MAX_PAYLOAD
from penstock.model.policy import Policy, Suppression
from penstock.model.recurrence import Rule
from penstock.model.route import KeyLimit, Route
from penstock.model.size import IN_FLIGHT_BYTES
from penstock.model.times import format_duration, parse_duration
from penstock.model.zone import DEFAULT_ZONE, is_zone
from penstock.ports.sink import SinkOptions
from penstock.ports.source import SourceOptions
from penstock.settings.ports import PortRange, port_range
from penstock.settings.rules import policies_from, recurring_from, suppressions_from
from penstock.settings.secrets import refuse_placeholder

OFF = "off"
"""In place of an address: not served."""
_HOST_NAME = re.compile(r"[0-9A-Za-z_]([0-9A-Za-z_.-]*[0-9A-Za-z_])?")
MIN_ROOM_KEY = 32
"""Bytes: a shorter key is weaker than the hash it signs with."""


def millis(value: Any) -> Any:
    """A duration as people write it → milliseconds."""
    try:
        timed = isinstance(value, str | float | int) and not isinstance(value, bool)
        return parse_duration(value) if timed else value
    except PenstockError as exc:
        raise ValueError(exc.message.partition(": ")[2]) from exc


def _backoff(value: Any) -> Any:
    try:
        return parse_backoff(value) if isinstance(value, str) else value
    except PenstockError as exc:
        raise ValueError(exc.message.partition(": ")[2]) from exc


def _host_port(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError('must be "host:port", such as "127.0.0.1:8700"')
    return value


def _host_port_or_off(value: str) -> str:
    return value if value == OFF else _host_port(value)


def _listed(value: Any) -> Any:
    """The environment knows only text: "a,b" is a list there."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _host_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if not _HOST_NAME.fullmatch(each):
            raise ValueError(f"{each!r} is not a host name (no scheme, no port)")
    return value


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError as exc:
            raise ValueError(f"{each!r} is not an address or a network") from exc
    return value


Millis = Annotated[int, BeforeValidator(millis)]
"""A duration: seconds, or "1500ms" "90s" "15m" "2h" "3d"."""
HostPort = Annotated[str, AfterValidator(_host_port)]
HostPortOrOff = Annotated[str, AfterValidator(_host_port_or_off)]
Contrib = Literal["dispatcher", "scheduler", "sender", "sms", "ticks"]
"""A system that Penstock replaces."""
Texts = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _no_placeholder(value: SecretStr) -> SecretStr:
    refuse_placeholder(value.get_secret_value())
    return value


Secret = Annotated[SecretStr, AfterValidator(_no_placeholder)]
"""A secret of the user's own: a text such as "change-me" is refused."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class TokenSettings(_Part):
    """A token of the API and its permissions."""

    name: str = Field(default="token", min_length=1, max_length=100)
    """The token's name in the log's audit lines. Unset: "token-1", "token-2" … by their order."""
    secret: Secret
    """The secret of `Authorization: Bearer <secret>`. At least 16 bytes."""
    scope: Literal["metrics", "read", "write", "admin"] = "admin"
    """metrics: only /metrics; read: look at everything; write: also schedule, cancel …; admin:
    also routes, policies, rooms."""
    routes: Annotated[tuple[str, ...] | None, BeforeValidator(_listed)] = None
    """The routes whose messages the token may read and change. Unset: all."""
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(_listed)] = None
    """The values of the label `class` whose messages the token may schedule and change. Unset: any
    value, and none.
    """


def _tokens(value: Any) -> Any:
    value = _listed(value)
    if isinstance(value, list | tuple):
        return [{"secret": item} if isinstance(item, str) else item for item in value]
    return value


class ApiSettings(_Part):
    http: HostPort = "127.0.0.1:8700"
    """The address on which HTTP listens."""
    grpc: HostPortOrOff = "127.0.0.1:8701"
    """The address on which gRPC listens, or "off". Unset, it is served if the `grpc` extra is
    installed and the port is free; set, either missing is an error.
    """
    tokens: Annotated[tuple[TokenSettings, ...], BeforeValidator(_tokens)] = ()
    """Non-empty: Bearer required on everything but health."""
    tls_cert: Path | None = None
    """File of the certificate (PEM) of HTTP and gRPC, with those of the intermediate authorities.
    Unset: both speak without TLS. Files that change are used without a restart.
    """
    tls_key: Path | None = None
    """File of its key (PEM), without a password."""
    max_body: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Bytes of one request's body at most; NDJSON batches may be of any length."""
    body_timeout: Millis = 30_000
    """A body that sends nothing for this long is answered 408 and cut."""
    keep_alive: Millis = 30_000
    """An idle connection is closed after this."""
    max_connections: int = Field(default=10_000, ge=1)
    """HTTP connections open at one time at most, and never more than the process may open files;
    one more is answered 503 with Retry-After and closed."""
    max_receiving: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Bytes of bodies that are arriving, over all connections; a body beyond it is answered 429
    with Retry-After. One body of `max_body` is always accepted.
    """
    hosts: Annotated[Texts, AfterValidator(_host_names)] = ()
    """Names this server answers to ("scheduler"), besides localhost and every IP address; checked
    only without tokens.
    """
    trusted_proxies: Annotated[Texts, AfterValidator(_networks)] = ()
    """Addresses or networks ("10.0.0.0/8") of the proxies in front: only their X-Forwarded-For
    names a visitor. Unset: the connecting address is the visitor's.
    """
    metrics: Annotated[PortRange | None, BeforeValidator(port_range)] = None
    """An additional address of an API process's /metrics, for processes behind one load balancer:
    "host:port", or "host:first-last" for the first that is free. Unset: only where HTTP listens.
    """

    @model_validator(mode="after")
    def _both_tls_files(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise ValueError(f"TLS needs tls_cert and tls_key: {missing} is not set")
        return self


class WorkerSettings(_Part):
    total_partitions: int = Field(default=DEFAULT_PARTITIONS, ge=1, le=4096)
    """Never reduced on a store that holds messages. Unset: as many as the store has."""
    bucket_size_sec: int = Field(default=60, ge=1, le=86_400)
    """Granularity of the cold tier."""
    batch_size: int = Field(default=500, ge=1, le=10_000)
    """Messages one claim takes at most."""
    in_flight_bytes: int = Field(default=IN_FLIGHT_BYTES, ge=1, le=1 << 40)
    """Bytes of payload and headers a worker holds at most, over all routes: claimed and not settled
    yet. A route may always have one message, however large."""
    gather: Millis = Field(default=4, ge=0, le=1_000)
    """How long messages that come due after a claim are gathered for the next one: a claim and a
    settlement for several messages cost little more than for one. A message that comes due alone
    never waits. "0": each message at once."""
    lease: Millis = Field(default=30_000, ge=100)
    """How long a claimed message is leased to its worker; extended during a send."""
    shutdown: Millis = 10_000
    """How long a stopping worker waits for sends in flight."""
    metrics: Annotated[PortRange | None, BeforeValidator(port_range)] = PortRange(
        "127.0.0.1", 9101, 9199
    )
    """The address of /metrics and health of a worker without an API: "host:port", "host:first-last"
    for the first that is free, or "none".
    """


class RouteSettings(_Part):
    """A route. Settings not named here are options of its sink, which refuses unknown ones."""

    model_config = ConfigDict(extra="allow")

    sink: str = "log://"
    """The sink's address: log:// · http(s)://… · python:pkg.mod:func · and the brokers."""
    format: Literal["message", "decision-batch"] = "message"
    """message: each payload as it is. decision-batch: messages due together, in one (see the
    sources' format of this name).
    """
    semaphore_limit: int | None = Field(default=None, ge=1, le=1_000_000)
    """Sends in flight at most; unset: the number that suits the sink."""
    settle_ahead: int | None = Field(default=None, ge=1, le=1_000_000)
    """No send begins while this many messages are sent and not settled, which is what a killed
    worker repeats. Unset: 100."""
    max_in_flight_per_key: int | None = Field(default=None, ge=1, le=1_000_000)
    """Messages of one key being sent at most; a busy key holds back no other."""
    ordered: bool = False
    """Send one message of a key at a time, in the order of due; a retry delays later ones."""
    max_attempts: int = Field(default=8, ge=1, le=1000)
    """Sends of one message before it is dead."""
    backoff: Annotated[Backoff, BeforeValidator(_backoff)] = Backoff()
    """Waits between attempts: exponential with jitter between the two."""
    timeout: Millis = Field(default=10_000, ge=1)
    """How long one send may take. A function cannot be stopped: set for a python: sink, it shows
    calls that take longer in /readyz and the metrics."""
    secret: Secret | None = None
    """Signs webhooks (Standard Webhooks, whsec_…)."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Sent with every message of the route."""
    topics: Texts = ()
    """Destinations a message may choose: `*` is one part between dots, a last `>` the rest."""

    def as_sink_options(self, name: str) -> SinkOptions:
        return SinkOptions(
            route=name,
            timeout=self.timeout / 1000,
            secret=None if self.secret is None else self.secret.get_secret_value(),
            headers=self.headers,
            topics=self.topics,
            more=self.model_extra or {},
        )

    def as_route(self, name: str) -> Route:
        return Route(
            name=name,
            max_attempts=self.max_attempts,
            backoff=self.backoff,
            semaphore_limit=self.semaphore_limit,
            settle_ahead=self.settle_ahead,
            topics=self.topics,
            per_key=self._per_key(),
            timeout=self.timeout if "timeout" in self.model_fields_set else None,
        )

    def _per_key(self) -> KeyLimit | None:
        if self.ordered:
            return KeyLimit(1, ordered=True)
        number = self.max_in_flight_per_key
        return None if number is None else KeyLimit(number)


class SourceSettings(_Part):
    """A source: schedule by publishing. Settings not named here are its driver's own."""

    model_config = ConfigDict(extra="allow")

    from_: str = Field(alias="from")
    """The source's address: kafka://…/topic · rabbitmq://…/queue · nats://…/subject."""
    format: Literal["message", "decision-batch", "decision-items", "schedule-event", "sms"] = (
        "message"
    )
    """The format of a record; message is the JSON of POST /v1/messages."""
    route: str = DEFAULT_ROUTE
    """The route of messages that name none."""
    routes: dict[str, str] = Field(default_factory=dict)
    """Only with decision-batch and decision-items: the route by a notification's `data.method`, as
    in `routes = { sendPush = "push", sendSms = "sms" }`; other methods go to `route`."""
    dead_letter: str | None = None
    """A sink's address for records that cannot be read or accepted; unset: they are stored as
    dead messages.
    """
    batch: int | None = Field(default=None, ge=1, le=10_000)
    """Records read at once at most; unset: the number that suits the format."""

    def as_source_options(self, name: str) -> SourceOptions:
        return SourceOptions(source=name, more=self.model_extra or {})


class LimitSettings(_Part):
    max_payload: int = Field(default=MAX_PAYLOAD, ge=1, le=64 * 1024 * 1024)
    """Bytes of one payload at most."""
    min_delay: Millis | None = None
    """The shortest time ahead for which a message is accepted, from any caller; unset: no
    minimum.
    """
    max_delay: Millis | None = Field(default=None, ge=1)
    """The longest time ahead for which a message is accepted, from any caller; unset: no
    maximum.
    """
    retention: Millis = 24 * 3_600_000
    """How long settled ids stay known."""
    retention_count: int = Field(default=1_000_000, ge=1)
    """How many settled ids stay known at most (about)."""
    dead_retention: Millis | None = Field(default=None, ge=1)
    """How long dead messages are kept; unset: until they are redriven or deleted."""
    zone: str = DEFAULT_ZONE
    """The zone of quiet hours and calendar caps when neither message nor policy names a known
    one.
    """

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, zone: str) -> str:
        if not is_zone(zone):
            raise ValueError(f"{zone[:50]!r} is not an IANA time zone")
        return zone

    @field_validator("max_delay")
    @classmethod
    def _not_below_min_delay(cls, value: int | None, info: ValidationInfo) -> int | None:
        least = info.data.get("min_delay")
        if value is not None and least is not None and value < least:
            raise ValueError(f"must not be less than min_delay ({format_duration(least)})")
        return value


class RoomKeySettings(_Part):
    """A key that signs entry tokens (HS256)."""

    kid: str = Field(default="k1", min_length=1, max_length=100)
    """Names the key in the token's header."""
    secret: Secret
    """At least 32 bytes."""

    @field_validator("secret")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value().encode()) < MIN_ROOM_KEY:
            raise ValueError(f"must be at least {MIN_ROOM_KEY} bytes")
        return value


class RoomsSettings(_Part):
    """Waiting rooms. A process whose settings have this section serves all of its store."""

    workers: int = Field(default=10, ge=1, le=1000)
    """Tasks that admit visitors."""
    queue: int = Field(default=100, ge=1, le=1_000_000)
    """Tasks that wait for a worker; when it is full, rooms wait in the store."""
    batch: int = Field(default=10, ge=1, le=10_000)
    """Admissions that are passed on at once."""
    poll: Millis = Field(default=2_000, ge=1)
    """How long a read waits for admissions to pass on."""
    take_over: Millis = Field(default=30_000, ge=100)
    """Admissions that another process took and did not pass on for this long are taken over."""
    capacity: int = Field(default=1000, ge=0)
    """The capacity of rooms that set none."""
    keys: tuple[RoomKeySettings, ...] = ()
    """Signing keys: the first signs, all are accepted. Unset: one is created once and stored."""
    issuer: str = "penstock"
    """The `iss` of entry tokens."""
    instance: str = ""
    """This server's name in a waiting visitor's record; unset: the host's name."""
    joins_per_client: int = Field(default=20, ge=1)
    """Joins a second from one address into public rooms, without a token; a burst may have three
    times as many."""


class LogSettings(_Part):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """debug · info · warning · error: log this level and those above."""
    format: Literal["auto", "json", "text"] = "auto"
    """auto: text in a terminal, JSON elsewhere."""
    file: Path | None = None
    """Also into this file, rotated."""


class Settings(_Part):
    """Every setting."""

    store: str = "sqlite:///penstock.db"
    """The store of messages: "sqlite:///file.db", "postgresql://host/db", "redis://host:6379",
    "redis+cluster://host:6379", "dynamodb+redis://…", or "memory://" for tests, which is lost when
    the process ends. The path of a SQLite file alone also works.
    """
    intake_topic: str | None = None
    """Only with dynamodb+redis://: a broker's topic (kafka://host:port/topic) that ids take on
    their way to Redis. The process that accepts a message publishes its id there, and workers read
    it. Unset: the ids go to Redis directly.
    """
    api: ApiSettings = ApiSettings()
    worker: WorkerSettings = WorkerSettings()
    routes: dict[str, RouteSettings] = Field(default_factory=dict)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Caps, quiet hours and paces put into the store at start; the JSON of /v1/policies/{id}."""
    suppressions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Suppression lists: created at start, or their keys added to the existing list."""
    recurring: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Rules put into the store at start; the JSON of /v1/recurring/{id}, and `managed = true` for
    one that is deleted at the first start without it."""
    limits: LimitSettings = LimitSettings()
    log: LogSettings = LogSettings()
    rooms: RoomsSettings = RoomsSettings()
    contrib: Annotated[tuple[Contrib, ...], BeforeValidator(_listed)] = ()
    """Replaced systems whose calls and figures this process has. Also turned on by a route `ticks`
    (ticks), a route `events` (scheduler) and `[rooms]` (dispatcher: it serves the waiting rooms
    that other programs write to Redis)."""

    @field_validator("store")
    @classmethod
    def _path_as_address(cls, store: str) -> str:
        # "redis" alone is an address without its scheme, not a file of that name.
        is_path = ":" not in store and ("/" in store or "." in store)
        return f"sqlite:///{store}" if is_path else store

    def all_routes(self) -> dict[str, RouteSettings]:
        """The configured routes; `default` always exists."""
        return {DEFAULT_ROUTE: RouteSettings(), **self.routes}

    def all_rules(self) -> tuple[dict[str, Policy], dict[str, Suppression]]:
        """The policies and suppression lists, checked."""
        return policies_from(self.policies), suppressions_from(self.suppressions)

    def all_recurring(self) -> dict[str, tuple[Rule, bool]]:
        """Recurring rules, checked, and whether they are managed."""
        return recurring_from(self.recurring, self.limits.max_payload)


def section(path: tuple[str, ...]) -> type[BaseModel] | None:
    """The part of the tree that has the settings below `path`."""
    if not path:
        return Settings
    if path[0] == "routes":
        return RouteSettings if len(path) == 2 else None
    if path[0] == "sources":
        return SourceSettings if len(path) == 2 else None
    if path[:2] == ("api", "tokens"):
        return TokenSettings
    field = Settings.model_fields.get(path[0])
    kind = None if field is None else field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
