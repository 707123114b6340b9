"""The arithmetic of `penstock size`: a load and measured figures in, parts and amounts out.

The figures are in `figures.json`, written by `python -m bench size`; every other assumption is a
constant of this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files

import msgspec

from penstock.model.errors import InvalidMessage
from penstock.model.times import parse_duration

MONTH_SECONDS = 30 * 86_400
GB = 10**9
FORK_ROOM = 1.5
"""Redis: memory beside the data for connections, fragmentation and writes during a rewrite of the
append-only file.
"""
LOG_ROOM = 2.0
"""Redis: the append-only file is rewritten when it has doubled, by its default setting."""
TABLE_ROOM = 1.5
"""PostgreSQL and SQLite: dead rows until vacuum, and free pages until they are used again."""
DYNAMODB_BYTES = 1_400
"""A DynamoDB item without its payload, with its entries in three indexes and AWS's overhead for
each, as docs/concepts/dynamodb.md counts them.
"""
UNIT_BYTES = 1_024
WRITES, READS = 9.1, 1.03
"""DynamoDB's units for a message of up to 1 KB delivered at the first try, and for each KB more
three writes: as docs/concepts/dynamodb.md counts them."""
WRITES_PER_KB = 3.0
NEAR_SECONDS = 900
"""DynamoDB: how far ahead ids are in Redis by default (`near`)."""
PARTITIONS_PER_NODE = 4
_KINDS = {
    **dict.fromkeys(("rediss", "redis+cluster", "rediss+cluster", "unix"), "redis"),
    "dynamodb+redis": "dynamodb",
    "postgres": "postgresql",
}
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kMGT]?)", re.ASCII)
_TIMES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PER = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Cpu(msgspec.Struct, frozen=True):
    """µs of CPU a message."""

    put: float
    """Cost in the process that accepts the message, without HTTP."""
    release: float
    """Cost in the worker: claimed, sent to a sink that costs nothing, settled."""
    server_put: float = 0.0
    server_release: float = 0.0

    @property
    def server(self) -> float:
        return self.server_put + self.server_release


class Bytes(msgspec.Struct, frozen=True):
    """Bytes a message with a payload of 100 bytes, and for every byte of payload more."""

    pending: float
    settled: float
    wire: float = 0.0
    """Bytes between the processes and the store, both ways, from put to settlement."""
    log: float = 0.0
    """Appended to the store's log from put to settlement."""
    per_payload: float = 1.0
    wire_per_payload: float = 2.0
    log_per_payload: float = 1.0


class StoreFigures(msgspec.Struct, frozen=True):
    cpu: Cpu
    bytes: Bytes
    cluster_cpu: Cpu | None = None
    """Cost with one call per partition, as in a cluster."""


class HttpFigures(msgspec.Struct, frozen=True):
    """µs of CPU that a message takes in the API, the store's put included, on SQLite."""

    single: float
    batch: float


class PriceFigures(msgspec.Struct, frozen=True):
    """US$, as published."""

    date: str
    source: str
    write: float
    read: float
    storage: float


class Figures(msgspec.Struct, frozen=True):
    """The measured figures, with their time and machine."""

    when: str
    machine: str
    payload: int
    http: HttpFigures
    stores: dict[str, StoreFigures]
    prices: PriceFigures


class Prices(msgspec.Struct, frozen=True):
    """Prices that replace the published ones."""

    write: float | None = None
    read: float | None = None
    storage: float | None = None

    def over(self, published: PriceFigures) -> PriceFigures:
        mine = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }
        return msgspec.structs.replace(published, **mine)


class Load(msgspec.Struct, frozen=True):
    rate: float
    """Messages a second, in and out."""
    pending: int
    store: str = "redis"
    payload: int = 100
    retention: str = "24h"
    retention_count: int = 1_000_000
    busy: float = 0.6
    node_memory: int = 16 * GB
    replicas: int = 1
    prices: Prices = Prices()

    @property
    def settled(self) -> int:
        """Settled messages that are known."""
        return min(
            math.ceil(self.rate * parse_duration(self.retention, "retention") / 1000),
            self.retention_count,
        )


class Line(msgspec.Struct, frozen=True):
    """One line of the plan: `amount` in `unit`."""

    what: str
    amount: float
    unit: str
    text: str
    why: str


class Answer(msgspec.Struct, frozen=True):
    store: str
    lines: list[Line]
    notes: list[str]


@cache
def figures() -> Figures:
    text = files("penstock").joinpath("cli", "size", "figures.json").read_bytes()
    return msgspec.json.decode(text, type=Figures)


def count(text: str, field: str) -> int:
    """ "200M" → 200,000,000."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InvalidMessage(field, "must be a number such as 20000, 500k, 200M or 1G")
    return math.ceil(float(match[1]) * _TIMES[match[2]])


def per_second(text: str) -> float:
    """ "50k/s", "3M/h" or "100M/d" → messages a second."""
    number, _, unit = text.partition("/")
    if unit not in _PER:
        wrong = f"{unit!r} is no unit of time" if unit else "the unit of time is missing"
        raise InvalidMessage("rate", f"{wrong}: write 50k/s, 90/m, 3M/h or 100M/d")
    rate = count(number, "rate") / _PER[unit]
    if rate <= 0:
        raise InvalidMessage("rate", "must be more than 0, such as 50k/s")
    return rate


def kind_of(store: str) -> str:
    """ "redis" of redis+cluster://…; a kind is its own."""
    scheme = store.partition(":")[0]
    return _KINDS.get(scheme, scheme)


def plan(load: Load) -> Answer:
    known = figures()
    reckon = _STORES.get(load.store)
    if reckon is None:
        raise InvalidMessage("store", f"must be one of {', '.join(_STORES)}")
    lines = list(reckon(load, known))
    return Answer(load.store, lines, list(_notes(load, known)))


def _notes(load: Load, known: Figures) -> Iterator[str]:
    yield (
        f"Reckoned from figures of {known.when}, {known.machine}; a core at {load.busy:.0%} at"
        " most. Sinks, policies and TLS are not in it: measure yours with `penstock bench`."
    )
    if load.store == "dynamodb":
        prices = load.prices.over(known.prices)
        changed = prices != known.prices
        yield (
            f"Prices: {'given by flags' if changed else known.prices.source}"
            f"{'' if changed else f', {known.prices.date}'}: US$ {prices.write:g} a million write"
            f" units, {prices.read:g} a million read units, {prices.storage:g} a GB and month."
        )


# --- the parts


def _processes(load: Load, what: str, micros: float) -> Line:
    number = math.ceil(load.rate * micros / 1e6 / load.busy)
    return Line(
        what, number, "processes", _several(number, "process"), f"{micros:.3g} µs a message"
    )


def _workers(load: Load, cpu: Cpu) -> Line:
    return _processes(load, "workers", cpu.release)


def _intake(load: Load, known: Figures, cpu: Cpu) -> Iterator[Line]:
    """The intake lines; a request costs what it takes beside SQLite's put."""
    sqlite = known.stores["sqlite"].cpu.put
    one = known.http.single - sqlite + cpu.put
    yield _processes(load, "API, one message a request", one)
    many = known.http.batch - sqlite + cpu.put
    yield _processes(load, "API, in batches", many)


def _network(load: Load, each: Bytes, known: Figures) -> Line:
    number = each.wire + each.wire_per_payload * (load.payload - known.payload)
    mbit = load.rate * number * 8 / 1e6
    return Line(
        "network, processes and store",
        mbit,
        "Mbit/s",
        f"{mbit:,.1f} Mbit/s",
        f"{number:,.0f} bytes a message, both ways",
    )


def _bytes_of(load: Load, each: Bytes, known: Figures) -> float:
    waiting = each.pending + each.per_payload * (load.payload - known.payload)
    return load.pending * max(waiting, 0.0) + load.settled * each.settled


def _why_bytes(load: Load, each: Bytes, known: Figures) -> str:
    waiting = each.pending + each.per_payload * (load.payload - known.payload)
    return (
        f"{load.pending:,} pending of {waiting:,.0f} bytes, {load.settled:,} settled of"
        f" {each.settled:,.0f}"
    )


def _written(load: Load, each: Bytes, known: Figures) -> Line:
    number = each.log + each.log_per_payload * (load.payload - known.payload)
    rate = load.rate * number / 1e6
    return Line(
        "written to disk",
        rate,
        "MB/s",
        f"{rate:,.1f} MB/s",
        f"{number:,.0f} bytes of log a message",
    )


def _gigabytes(what: str, number: float, why: str) -> Line:
    return Line(what, number / GB, "GB", _size(number), why)


def _redis(load: Load, known: Figures) -> Iterator[Line]:
    store = known.stores["redis"]
    data = _bytes_of(load, store.bytes, known)
    number, cpu = _nodes(load, store, data)
    yield from _redis_nodes(load, known, number, cpu, data)
    yield _workers(load, cpu)
    yield from _intake(load, known, cpu)
    yield _network(load, store.bytes, known)


def _nodes(load: Load, store: StoreFigures, data: float) -> tuple[int, Cpu]:
    """One server if that is enough, else at least three primaries of a cluster; and the cost of a
    message there.
    """
    by_memory = math.ceil(data * FORK_ROOM / load.node_memory)
    alone = load.rate * store.cpu.server / 1e6 / load.busy
    if max(by_memory, alone) <= 1:
        return 1, store.cpu
    cpu = store.cluster_cpu or store.cpu
    return max(3, by_memory, math.ceil(load.rate * cpu.server / 1e6 / load.busy)), cpu


def _redis_nodes(load: Load, known: Figures, number: int, cpu: Cpu, data: float) -> Iterator[Line]:
    copies = f" and {_several(number * load.replicas, 'replica')}" if load.replicas else ""
    yield Line(
        "Redis Cluster, nodes" if number > 1 else "Redis, servers",
        number,
        "nodes",
        f"{number:,}{copies}",
        f"{cpu.server:.3g} µs a message, {_size(load.node_memory)} a node",
    )
    if number > 1:
        partitions = number * PARTITIONS_PER_NODE
        yield Line(
            "total_partitions",
            partitions,
            "partitions",
            f"{partitions:,} or more",
            f"{PARTITIONS_PER_NODE} a node, so that they share the work evenly",
        )
    each = known.stores["redis"].bytes
    yield _gigabytes("data in memory", data, _why_bytes(load, each, known))
    yield _gigabytes(
        "memory of all primaries", data * FORK_ROOM, f"{FORK_ROOM:g} x the data: rewrites, buffers"
    )
    yield _gigabytes(
        "disk of all primaries",
        data * (1 + LOG_ROOM),
        f"the log, {LOG_ROOM:g} x the data before it is rewritten, and the new one",
    )
    yield _written(load, each, known)


def _sqlite(load: Load, known: Figures) -> Iterator[Line]:
    store = known.stores["sqlite"]
    both = store.cpu.release + known.http.batch
    number = math.ceil(load.rate * both / 1e6 / load.busy)
    most = load.busy * 1e6 / both
    yield Line(
        "processes",
        number,
        "processes",
        "1" if number == 1 else "more than one process can do",
        f"API and worker share the file: {both:.3g} µs a message in batches, {most:,.0f}/s at most"
        f" (one a request: {load.busy * 1e6 / (store.cpu.release + known.http.single):,.0f}/s)",
    )
    data = _bytes_of(load, store.bytes, known)
    yield _gigabytes("disk", data * TABLE_ROOM, _why_bytes(load, store.bytes, known))
    yield _written(load, store.bytes, known)


def _postgresql(load: Load, known: Figures) -> Iterator[Line]:
    store = known.stores["postgresql"]
    cores = load.rate * store.cpu.server / 1e6 / load.busy
    yield Line(
        "PostgreSQL",
        math.ceil(cores),
        "cores",
        _several(math.ceil(cores), "core"),
        f"{store.cpu.server:.3g} µs a message",
    )
    data = _bytes_of(load, store.bytes, known)
    yield _gigabytes("disk", data * TABLE_ROOM, _why_bytes(load, store.bytes, known))
    yield _written(load, store.bytes, known)
    yield _workers(load, store.cpu)
    yield from _intake(load, known, store.cpu)
    yield _network(load, store.bytes, known)


def _dynamodb(load: Load, known: Figures) -> Iterator[Line]:
    prices = load.prices.over(known.prices)
    more = max(0, math.ceil((load.payload + 200) / UNIT_BYTES) - 1)
    writes, reads = WRITES + WRITES_PER_KB * more, READS
    yield _units("write units", load.rate * writes, writes)
    yield _units("read units", load.rate * reads, reads)
    millions = load.rate * MONTH_SECONDS / 1e6
    dollars = millions * (writes * prices.write + reads * prices.read)
    yield Line(
        "requests a month",
        dollars,
        "US$",
        f"US$ {dollars:,.2f}",
        f"{millions:,.0f} million messages, on demand",
    )
    data = (load.pending + load.settled) * (DYNAMODB_BYTES + load.payload)
    stored = data / GB * prices.storage
    yield _gigabytes("data in DynamoDB", data, f"{DYNAMODB_BYTES + load.payload:,} bytes a message")
    yield Line("storage a month", stored, "US$", f"US$ {stored:,.2f}", "on demand, standard class")
    redis = known.stores["redis"]
    near = min(load.pending, math.ceil(load.rate * NEAR_SECONDS))
    ids = near * (redis.bytes.pending - known.payload * redis.bytes.per_payload)
    yield _gigabytes(
        "Redis beside it",
        ids * FORK_ROOM,
        f"ids of {near:,} messages due within 15 minutes at most",
    )


def _units(what: str, number: float, each: float) -> Line:
    return Line(what, number, "units/s", f"{number:,.0f}/s", f"{each:.3g} a message")


_STORES: dict[str, Callable[[Load, Figures], Iterator[Line]]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "postgresql": _postgresql,
    "dynamodb": _dynamodb,
}


def _several(number: int, noun: str) -> str:
    plural = {"process": "processes"}.get(noun, f"{noun}s")
    return f"{number:,} {noun if number == 1 else plural}"


def _size(number: float) -> str:
    for unit, least in (("TB", 10**12), ("GB", GB), ("MB", 10**6)):
        if number >= least:
            return f"{number / least:,.1f} {unit}"
    return f"{number / 1000:,.1f} kB"
