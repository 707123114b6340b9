"""Everything a seed decides beforehand: who runs, what is asked, what goes wrong and when.

Each part draws from a source of its own, so that taking one away (to shrink a failure) leaves the
others as they are.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

LENGTH_MS = 30_000
"""How long things go wrong; then everything is mended and must come to its end."""


class Kind(StrEnum):
    """What happens to the fleet."""

    CRASH = "crash"  # value: after so many callbacks more
    RESTART = "restart"  # in good order: stop, then start again
    FREEZE = "freeze"
    AWAY = "store away"
    LOSSY = "store lossy"  # value: per cent of the calls
    SINK = "sink"  # detail: how it behaves
    JUMP = "clock jump"  # value: milliseconds; of one process, or of the store
    PAUSE = "pause route"
    POLICY = "policy"  # detail: which one; value 0: dropped
    GROW = "more partitions"
    CAPACITY = "capacity"  # of the room
    SHUT = "pause room"
    RESET = "reset room"  # a new epoch: everybody out, no token is good any more
    BROKER = "broker away"


@dataclass(frozen=True, slots=True)
class Event:
    at: int
    kind: Kind
    target: str = ""
    """A process, a route; empty: everybody, or the store."""
    span: int = 0
    value: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    capacity: int
    batch: int
    """Messages one send takes."""
    attempts: int
    delay: int
    """Milliseconds a send takes at most, each way."""
    slow: int = 0
    """Per cent of the sends that take longer than a lease."""
    per_key: int = 0
    """Messages of one key in flight at most; 0: as many as there are."""
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    api: bool
    worker: bool
    delay: int
    """Milliseconds to the store at most, each way."""
    offset: int
    """How wrong its clock is."""


class Ask(StrEnum):
    """What a caller does."""

    PUT = "put"
    BATCH = "batch"
    AGAIN = "put again"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    RELEASE = "release"
    GET = "get"
    SEARCH = "search"
    CANCEL_WHERE = "cancel where"
    REDRIVE = "redrive"
    PUBLISH = "publish"
    VISIT = "visit"


_ASKS = {
    Ask.PUT: 50, Ask.BATCH: 6, Ask.AGAIN: 6, Ask.CANCEL: 10, Ask.RESCHEDULE: 6, Ask.RELEASE: 4,
    Ask.GET: 2, Ask.SEARCH: 1, Ask.CANCEL_WHERE: 1, Ask.REDRIVE: 2, Ask.PUBLISH: 14,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing asked; what exactly is drawn from its own number."""

    number: int
    at: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    store: str
    skewed: bool
    """Clocks of processes are wrong, and the store holds `now` against its own."""
    lease: int
    poll: int
    retention: int
    lost_wakes: float
    processes: tuple[Process, ...]
    routes: tuple[Route, ...]
    events: tuple[Event, ...]
    asked: tuple[Asked, ...]
    policies: tuple[str, ...]
    """In force from the start."""
    rooms: bool
    rate: str | None
    """How fast the room lets people in."""
    opens: int
    """Milliseconds until it opens; whoever lines up before is let in by lot. 0: it is open."""
    dispatched: bool
    """Promotions are passed on to others, as on Redis."""
    length: int = LENGTH_MS

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.store}, {len(self.processes)} processes, "
            f"{len(self.routes)} routes, {len(self.asked)} asked, {len(self.events)} events"
        )


SINK_MOODS = ("timeout", "refuse", "busy", "gone", "accept_lost", "twice", "raise", "mixed")
POLICY_NAMES = ("cap", "interval", "pace", "quiet", "suppress", "cross")


def draw(seed: int) -> Plan:
    """The plan of a seed: always the same one."""
    chance = random.Random(f"{seed}:plan")
    processes = _processes(chance)
    routes = _routes(chance)
    lease = chance.choice((1_000, 2_000, 4_000))
    skewed = chance.random() < 0.4
    if not skewed:
        processes = tuple(replace(process, offset=0) for process in processes)
    rooms = chance.random() < 0.35
    return Plan(
        seed=seed,
        store=chance.choice(("sqlite", "sqlite", "memory")),
        skewed=skewed,
        lease=lease,
        poll=chance.choice((200, 1_000, 2_000)),
        retention=chance.choice((3_600_000, 3_600_000, 8_000)),
        lost_wakes=chance.choice((0.0, 0.0, 0.2, 1.0)),
        processes=processes,
        routes=routes,
        events=_events(random.Random(f"{seed}:events"), processes, routes, lease, rooms),
        asked=_asked(random.Random(f"{seed}:asked"), rooms),
        policies=tuple(name for name in POLICY_NAMES if chance.random() < 0.15),
        rooms=rooms,
        rate=chance.choice((None, None, "5/s")),
        opens=chance.choice((0, 0, 6_000)),
        dispatched=chance.random() < 0.5,
    )


def _processes(chance: random.Random) -> tuple[Process, ...]:
    number = chance.choice((1, 2, 2, 3))
    made = []
    for place in range(number):
        kind = chance.choice(("serve", "serve", "api", "worker")) if place else "serve"
        made.append(
            Process(
                name=f"p{place}",
                api=kind != "worker",
                worker=kind != "api",
                delay=chance.choice((0, 0, 2, 20)),
                offset=chance.choice((0, 3, -3, 50, -50, 200, -200)),
            )
        )
    return tuple(made)


def _routes(chance: random.Random) -> tuple[Route, ...]:
    return tuple(_route(chance, name) for name in ("a", "b")[: chance.choice((1, 2, 2))])


def _route(chance: random.Random, name: str) -> Route:
    ordered = chance.random() < 0.15
    return Route(
        name=name,
        capacity=chance.choice((1, 2, 5, 20)),
        batch=chance.choice((1, 1, 5)),
        attempts=chance.choice((2, 4, 8)),
        delay=chance.choice((0, 5, 100)),
        slow=chance.choice((0, 0, 5)),
        per_key=1 if ordered else chance.choice((0, 0, 0, 0, 0, 1, 2)),
        ordered=ordered,
    )


def _asked(chance: random.Random, rooms: bool) -> tuple[Asked, ...]:
    weights = dict(_ASKS)
    if rooms:
        weights[Ask.VISIT] = 25
    number = chance.choice((15, 30, 60))
    times = sorted(chance.randint(0, LENGTH_MS - 5_000) for _ in range(number))
    kinds = chance.choices(list(weights), list(weights.values()), k=number)
    return tuple(Asked(n, at, kind) for n, (at, kind) in enumerate(zip(times, kinds, strict=True)))


def _events(
    chance: random.Random,
    processes: tuple[Process, ...],
    routes: tuple[Route, ...],
    lease: int,
    rooms: bool,
) -> tuple[Event, ...]:
    number = chance.choice((0, 2, 5, 10, 16))
    events = [_event(chance, processes, routes, lease, rooms) for _ in range(number)]
    return tuple(sorted(events, key=lambda event: event.at))


def _event(
    chance: random.Random,
    processes: tuple[Process, ...],
    routes: tuple[Route, ...],
    lease: int,
    rooms: bool,
) -> Event:
    at = chance.randint(0, LENGTH_MS)
    process = chance.choice(processes).name
    route = chance.choice(routes).name
    kinds = {
        Kind.CRASH: 8, Kind.RESTART: 3, Kind.FREEZE: 5, Kind.AWAY: 3, Kind.LOSSY: 5, Kind.SINK: 6,
        Kind.JUMP: 3, Kind.PAUSE: 2, Kind.POLICY: 3, Kind.GROW: 1, Kind.BROKER: 1,
        Kind.CAPACITY: 2 * rooms, Kind.SHUT: rooms, Kind.RESET: rooms,
    }  # fmt: skip
    (kind,) = chance.choices(list(kinds), list(kinds.values()))
    span = chance.choice((200, 1_000, 3_000, 8_000))
    match kind:
        case Kind.CRASH:
            return Event(at, kind, process, span, chance.choice((0, 1, 3, 7, 20, 60)))
        case Kind.FREEZE:
            return Event(at, kind, process, chance.choice((300, lease + 500, 3 * lease)))
        case Kind.AWAY | Kind.LOSSY:
            target = chance.choice(("", process))
            return Event(at, kind, target, span, chance.choice((20, 50, 100)))
        case Kind.SINK:
            return Event(at, kind, route, span, detail=chance.choice(SINK_MOODS))
        case Kind.JUMP:
            by = chance.choice((-20_000, -1_500, 1_500, 20_000, 3_600_000))
            return Event(at, kind, chance.choice(("", process)), 0, by)
        case Kind.PAUSE:
            return Event(at, kind, route, span)
        case Kind.POLICY:
            name = chance.choice(POLICY_NAMES)
            return Event(at, kind, "", span, chance.choice((0, 1)), name)
        case Kind.CAPACITY:
            return Event(at, kind, "", 0, chance.choice((0, 1, 2, 5)))
        case _:
            return Event(at, kind, process if kind is Kind.RESTART else "", span)
