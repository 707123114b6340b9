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
    LINK = "link"  # of one process; detail: which way nothing gets through
    PART = "part of the store away"  # detail: which
    POISON = "poison record"  # one that can be read, and that no store can take


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
    BURST = "burst"  # many at once, for one moment, on one route
    POISON = "publish poison"  # several records that cannot be read
    UNSTORABLE = "publish what no store takes"  # between others


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
    route: str = ""
    """Of a burst."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    store: str
    skewed: bool
    """Clocks of processes are wrong, and the store holds `now` against its own."""
    lease: int
    poll: int
    gather: int
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
    stays: Event | None = None
    """What goes wrong and is never mended: everything else must come to its end."""
    length: int = LENGTH_MS

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.store}, {len(self.processes)} processes, "
            f"{len(self.routes)} routes, {len(self.asked)} asked, {len(self.events)} events"
            + (f", {self.stays.kind} for ever" if self.stays is not None else "")
        )


def is_away(stays: Event | None, part: str) -> bool:
    """Whether that part of the store is away for ever."""
    return stays is not None and stays.kind is Kind.PART and stays.detail == part


FIRST_TOGETHER = 1_000
"""Numbers of what is asked besides."""
UNSTORABLE = "x"
"""How the ids of messages begin that no store can take."""
SINK_MOODS = ("timeout", "refuse", "busy", "gone", "accept_lost", "twice", "raise", "mixed")
POLICY_NAMES = ("cap", "interval", "pace", "quiet", "suppress", "cross")


STAYING_MOODS = ("gone", "timeout", "refuse", "busy", "raise", "hang")
PARTS = ("rooms", "policies", "route")
WAYS = ("requests", "replies")
"""Which way nothing gets through."""


def draw(seed: int) -> Plan:
    """The plan of a seed: always the same one.

    What came later is drawn for some seeds only, so that the others keep their course: half of
    them have faults that matter only together, three of ten one that is never mended.
    """
    plan = _draw(seed)
    if seed % 10 in (0, 2, 7, 8, 9):
        plan = _together(random.Random(f"{seed}:together"), plan)
    if seed % 10 >= 7:
        plan = _staying(random.Random(f"{seed}:stays"), plan)
        poison = random.Random(f"{seed}:poison")
        if poison.random() < 0.2:
            at = poison.randint(0, LENGTH_MS)
            asked = Asked(FIRST_TOGETHER - 1, at, Ask.UNSTORABLE)
            plan = replace(plan, stays=Event(at, Kind.POISON), asked=(*plan.asked, asked))
    return plan


def _draw(seed: int) -> Plan:
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
        gather=random.Random(f"{seed}:gather").choice((0, 0, 4, 50)),
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


def _together(chance: random.Random, plan: Plan) -> Plan:
    """Faults with what makes them felt: much to send, or another fault in the same moment."""
    events, asked = list(plan.events), list(plan.asked)

    def ask(at: int, what: Ask, route: str = "") -> None:
        asked.append(Asked(FIRST_TOGETHER + len(asked), max(0, at), what, route))

    for event in plan.events:
        at, route = event.at, chance.choice(plan.routes).name
        if chance.random() < 0.3:
            continue
        if event.kind is Kind.JUMP:
            ask(at + chance.randint(0, 4_000), Ask.BURST, route)
        elif event.kind is Kind.SINK:
            ask(at + chance.randint(0, event.span // 2), Ask.BURST, event.target)
        elif event.kind is Kind.RESTART:  # what is under way then cannot end in time
            mood = chance.choice(("timeout", "accept_lost"))
            events.append(Event(max(0, at - 1_000), Kind.SINK, route, 3_000, detail=mood))
            ask(at - 700, Ask.BURST, route)
        elif event.kind is Kind.BROKER:
            ask(at, Ask.POISON)
    if chance.random() < 0.3:  # long enough to be looked for again and again
        at, route = chance.randint(0, LENGTH_MS - 10_000), chance.choice(plan.routes).name
        mood = chance.choice(("gone", "gone", "accept_lost"))
        events.append(Event(at, Kind.SINK, route, 8_000, detail=mood))
        ask(at + 100, Ask.BURST, route)
        ask(at + 3_000, Ask.BURST, route)
    events.sort(key=lambda event: event.at)
    return replace(plan, events=tuple(events), asked=tuple(asked))


def _staying(chance: random.Random, plan: Plan) -> Plan:
    """One thing is broken from some moment on and for ever; there is always another that is not."""
    at = chance.randint(0, LENGTH_MS)
    kind = chance.choice((Kind.SINK, Kind.SINK, Kind.LINK, Kind.PART))
    routes, processes = plan.routes, plan.processes
    if len(routes) == 1:
        routes = (*routes, _route(chance, "b"))
    match kind:
        case Kind.SINK:
            target, detail = chance.choice(routes).name, chance.choice(STAYING_MOODS)
        case Kind.LINK:
            if len(processes) == 1:
                processes = (*processes, replace(processes[0], name="p1"))
            target, detail = "p1", chance.choice(WAYS)
        case _:
            detail = chance.choice(PARTS)
            target = chance.choice(routes).name if detail == "route" else ""
    stays = Event(at, kind, target, detail=detail)
    asked = plan.asked
    if detail == "route":  # there is something on its way then
        first = FIRST_TOGETHER + len(asked)
        times = (max(0, at - chance.randint(1, 150)) for _ in routes)
        asked += tuple(
            Asked(first + n, when, Ask.BURST, route.name)
            for n, (when, route) in enumerate(zip(times, routes, strict=True))
        )
    return replace(plan, routes=routes, processes=processes, asked=asked, stays=stays)


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
            if by == -20_000 and at % 3 == 0:  # longer than a run: a wait by the clock shows
                by = -300_000
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
