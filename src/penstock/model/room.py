"""A waiting room's settings and figures: capacity, admission rate and time-outs."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from penstock.model.errors import InvalidMessage
from penstock.model.times import parse_duration, parse_moment
from penstock.model.wire import read_json

DEFAULT_CAPACITY = 1000
DEFAULT_CLAIM_TTL = 120_000
DEFAULT_SESSION_TTL = 600_000
DEFAULT_WAIT_GRACE = 90_000
DEFAULT_LANE = "default"
MAX_CAPACITY = 10_000_000
MAX_LANES = 4
"""Most lanes: the default one and three more, for each of which stores reserve a field."""
MAX_WEIGHT = 1000
MAX_NAME = 200

_NAME = re.compile(r"[^\s/{}?#%\\\x00-\x1f\x7f]+")
_LANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}", re.ASCII)
_RATE = re.compile(r"(\d+)\s*/\s*(ms|s|m|h|d|sec|min|hour|day)", re.ASCII)
_PER_MS = {
    "ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip


def is_room_name(text: str) -> bool:
    """Whether the text is 1-200 printable characters that need no quoting in a path or key."""
    return len(text) <= MAX_NAME and text.isprintable() and _NAME.fullmatch(text) is not None


class RoomState(StrEnum):
    SCHEDULED = "scheduled"  # visitors may join; none is admitted before it opens
    OPEN = "open"
    PAUSED = "paused"  # visitors may join; none is admitted
    CLOSED = "closed"  # no visitor may join or is admitted


class Rate(msgspec.Struct, frozen=True):
    """`count` admissions in every `per` milliseconds."""

    count: int
    per: int

    @property
    def a_second(self) -> float:
        return self.count * 1000 / self.per

    def __str__(self) -> str:
        unit = {1000: "s", 60_000: "m", 3_600_000: "h", 86_400_000: "d"}.get(self.per, "ms")
        return f"{self.count}/{unit}"


class RoomSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A room's settings by its operator. Durations are milliseconds, None for never."""

    capacity: int = DEFAULT_CAPACITY
    """Most slots: admitted and entered visitors together never exceed it."""
    admit_rate: Rate | None = None
    claim_ttl: int | None = DEFAULT_CLAIM_TTL
    """How long an admitted visitor may take to enter before the slot goes to the next."""
    session_ttl: int | None = DEFAULT_SESSION_TTL
    """How long a visitor inside keeps the slot without a heartbeat."""
    wait_grace: int | None = DEFAULT_WAIT_GRACE
    """How long a waiting visitor may be silent before the ticket expires."""
    expire_outside: bool = False
    """True if TTLs were set explicitly: they also end tickets that another program queued."""
    lanes: dict[str, int] = msgspec.field(default_factory=lambda: {DEFAULT_LANE: 1})
    """Lane → weight. Lanes with visitors waiting share the slots in proportion."""
    lottery: bool = False
    """Visitors who joined before opening are admitted by lot, not in order of arrival."""
    seed: str = ""
    """The lottery's seed: equal seeds draw equal orders. Secret, or the draw could be predicted."""
    opens_at: int | None = None
    """The moment at which a scheduled room opens."""
    public: bool = False
    """True: visitors may join without credentials."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A room as the store holds it."""

    name: str
    settings: RoomSettings
    state: RoomState = RoomState.OPEN
    epoch: int = 1
    """Increases with every reset: tickets of earlier epochs are void."""

    def state_at(self, now: int) -> RoomState:
        return effective_state(self.state, self.settings.opens_at, now)


class RoomPast(msgspec.Struct, frozen=True):
    """The totals of epochs that a reset has ended, so that overall totals never decrease."""

    joined: int = 0
    promoted: int = 0
    left: int = 0
    expired: int = 0


class RoomFigures(msgspec.Struct, frozen=True, kw_only=True):
    """joined = waiting + admitted + entered + left + expired + revoked, in this epoch.

    Members that another program put into the queue count as joined once they are promoted.
    """

    room: Room
    state: RoomState
    """The state now: a scheduled room whose opening time has come is open."""
    in_use: int
    """Slots in use, by the store's counter (another program may have changed it)."""
    waiting: int = 0
    admitted: int = 0
    entered: int = 0
    left: int = 0
    expired: int = 0
    revoked: int = 0
    joined: int = 0
    promoted: int = 0
    """Admissions so far, including ended ones."""
    a_minute: float = 0.0
    """Admissions in about the last minute."""
    before: RoomPast = RoomPast()
    """The totals of earlier epochs."""


class RoomDraft(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The JSON of `PUT /v1/rooms/{room}`; absent fields take their defaults."""

    capacity: int | None = None
    admit_rate: str | float | None = None
    claim_ttl: str | float | msgspec.UnsetType | None = msgspec.UNSET
    session_ttl: str | float | msgspec.UnsetType | None = msgspec.UNSET
    wait_grace: str | float | msgspec.UnsetType | None = msgspec.UNSET
    lanes: dict[str, int] | None = None
    lottery: bool = False
    seed: str | None = None
    opens_at: str | None = None
    public: bool = False
    state: RoomState | None = None
    """None keeps an existing room's state; a new room is scheduled or open."""


_decoder = msgspec.json.Decoder(RoomDraft)


def decode_room(body: bytes) -> RoomDraft:
    """JSON → RoomDraft, or an error that names the field."""
    return read_json(_decoder, body)


def check_room(draft: RoomDraft, default_capacity: int = DEFAULT_CAPACITY) -> RoomSettings:
    """A RoomDraft → settings that can work, or InvalidMessage naming the field."""
    capacity = default_capacity if draft.capacity is None else draft.capacity
    if not 0 <= capacity <= MAX_CAPACITY:
        raise InvalidMessage("capacity", f"must be 0-{MAX_CAPACITY:,}")
    given = (draft.claim_ttl, draft.session_ttl, draft.wait_grace)
    return RoomSettings(
        capacity=capacity,
        admit_rate=None if draft.admit_rate is None else parse_rate(draft.admit_rate),
        claim_ttl=_ttl("claim_ttl", draft.claim_ttl, DEFAULT_CLAIM_TTL),
        session_ttl=_ttl("session_ttl", draft.session_ttl, DEFAULT_SESSION_TTL),
        wait_grace=_ttl("wait_grace", draft.wait_grace, DEFAULT_WAIT_GRACE),
        expire_outside=any(value not in (msgspec.UNSET, None) for value in given),
        lanes=check_lanes(draft.lanes),
        lottery=draft.lottery,
        seed=_seed(draft.seed),
        opens_at=None if draft.opens_at is None else parse_moment(draft.opens_at, "opens_at"),
        public=draft.public,
    )


def parse_rate(value: str | float, field: str = "admit_rate") -> Rate:
    """A rate from "200/s", "30/m", "5/h" or a whole number per second."""
    if isinstance(value, str):
        match = _RATE.fullmatch(value.strip()) if len(value) <= 40 else None
        if match is None:
            raise InvalidMessage(field, 'must be a rate such as "200/s", "30/m" or "5/h"')
        rate = Rate(int(match[1]), _PER_MS[match[2]])
    elif float(value).is_integer():
        rate = Rate(int(value), 1000)
    else:
        raise InvalidMessage(field, 'must be whole, such as "5/m" for less than one a second')
    if not 1 <= rate.count <= 1_000_000:
        raise InvalidMessage(field, "must be 1-1,000,000 in its unit of time")
    return rate


def check_lanes(lanes: dict[str, int] | None) -> dict[str, int]:
    """The lanes, with the default lane first even if it was not named."""
    named = {DEFAULT_LANE: 1, **(lanes or {})}
    if len(named) > MAX_LANES:
        raise InvalidMessage("lanes", f"has more than {MAX_LANES} entries, the default one counted")
    for name, weight in named.items():
        if _LANE.fullmatch(name) is None:
            raise InvalidMessage("lanes", f"the name {name[:50]!r} must be letters, digits, _ . -")
        if not 1 <= weight <= MAX_WEIGHT:
            raise InvalidMessage(f"lanes.{name}", f"must be a weight of 1-{MAX_WEIGHT}")
    return named


def first_state(draft_state: RoomState | None, settings: RoomSettings, now: int) -> RoomState:
    """The state of a new room."""
    if draft_state is not None:
        return draft_state
    ahead = settings.opens_at is not None and settings.opens_at > now
    return RoomState.SCHEDULED if ahead else RoomState.OPEN


def effective_state(state: RoomState, opens_at: int | None, now: int) -> RoomState:
    """The state at `now`: a scheduled room is open from its moment on, before any write says so."""
    if state is RoomState.SCHEDULED and opens_at is not None and opens_at <= now:
        return RoomState.OPEN
    return state


def _ttl(field: str, value: str | float | msgspec.UnsetType | None, default: int) -> int | None:
    if value is msgspec.UNSET:
        return default
    if value is None:
        return None
    millis = parse_duration(value, field)
    if millis < 1:
        raise InvalidMessage(field, "must be more than 0; null: never")
    return millis


def _seed(value: str | None) -> str:
    if value is not None and not (1 <= len(value) <= 200 and value.isprintable()):
        raise InvalidMessage("seed", "must be 1-200 printable characters")
    return value or ""
