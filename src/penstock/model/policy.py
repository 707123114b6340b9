"""Policies as operators write them: the JSON of `PUT /v1/policies/{id}`, checked field by field.

A policy keeps the words it was written in; `penstock.limits` turns them into numbers.
"""

from __future__ import annotations

import re
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias

import msgspec

from penstock.model.draft import is_key
from penstock.model.errors import InvalidMessage
from penstock.model.route import is_route_name
from penstock.model.times import parse_duration
from penstock.model.wire import read_json, read_value, wire_error
from penstock.model.zone import is_zone

MAX_LIMIT = 1_000_000_000
MAX_BURST = 1_000_000
MAX_RATE = 100_000
"""Highest pace, per second; a faster pace limits nothing that one store can decide."""
MAX_WINDOW_MS = 400 * 86_400_000
MAX_VALUES = 1_000
"""Most entries of one list in applies_to or bypass."""
DAY_MINUTES = 24 * 60

_WALL = re.compile(r"([01]\d|2[0-4]):([0-5]\d)", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)?(ms|s|m|h|d)", re.ASCII)


class OnExceed(StrEnum):
    """The fate of a message that a policy does not allow now."""

    DEFER = "DEFER"
    BLOCK = "BLOCK"


class Scope(StrEnum):
    """A property a cap counts by; several words count each combination separately."""

    KEY = "key"
    CHANNEL = "channel"
    CAMPAIGN = "campaign"
    TAG = "tag"
    ROUTE = "route"


class Calendar(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"  # from Monday
    MONTH = "month"
    YEAR = "year"


class Day(StrEnum):
    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


EVERY_DAY = tuple(Day)


class AppliesTo(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The messages a policy matches: every given field must match, by any of its values."""

    route: tuple[str, ...] | None = None
    channel: tuple[str, ...] | None = None
    campaign: tuple[str, ...] | None = None
    class_: tuple[str, ...] | None = msgspec.field(name="class", default=None)
    tag: tuple[str, ...] | None = None


class CalendarWindow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A window from one calendar boundary to the next, in a zone."""

    calendar: Calendar
    zone: str | None = None


class _Policy(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
):
    applies_to: AppliesTo | None = None
    on_exceed: OnExceed = OnExceed.DEFER
    max_defer: str | float | None = None
    """Longest deferral beyond the message's own due; a longer one blocks the message."""
    bypass: tuple[str, ...] = ()
    """Classes of messages that this policy does not apply to."""
    shadow: bool = False
    """True: the policy decides and counts, but its verdict is not applied."""


class Cap(_Policy, frozen=True, kw_only=True, tag="cap"):
    """At most `limit` in a window, and `min_interval` between two, for each value of the scope."""

    scope: tuple[Scope, ...]
    limit: int | None = None
    window: str | float | CalendarWindow | None = None
    min_interval: str | float | None = None
    bypass_counts: bool = False
    """Count bypassing messages too."""


class Quiet(_Policy, frozen=True, kw_only=True, tag="quiet"):
    """Nothing from `from` to `to` by the recipient's wall clock, on nights that begin on `days`."""

    from_: str = msgspec.field(name="from")
    to: str
    days: tuple[Day, ...] = EVERY_DAY
    zone: str | None = None
    """The recipient's zone if the message names none (label `tz`)."""
    spread: str | float = "1m"
    """Held messages go out within this time of the window's end, each at its own moment."""


class Pace(_Policy, frozen=True, kw_only=True, tag="pace"):
    """At most `burst` at once and `rate` in the long run, for all messages it applies to."""

    rate: str
    burst: int | None = None
    """Default: the messages that the rate allows in 10 ms, at least 1."""
    bypass_counts: bool = False


Policy: TypeAlias = Cap | Quiet | Pace


class Suppression(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Keys that receive nothing: the JSON of `PUT /v1/suppressions/{id}`."""

    keys: tuple[str, ...] = ()
    legal: bool = False
    """A legal opt-out: no message bypasses it."""
    bypass: tuple[str, ...] = ()
    applies_to: AppliesTo | None = None


class RuleBook(msgspec.Struct, frozen=True):
    """All policies and suppressions at one version, suppressions without their keys."""

    version: int = 0
    policies: dict[str, Policy] = {}
    suppressions: dict[str, Suppression] = {}

    def __bool__(self) -> bool:
        """Whether there is any policy or suppression."""
        return bool(self.policies or self.suppressions)


_policy = msgspec.json.Decoder(Policy)
_suppression = msgspec.json.Decoder(Suppression)


def decode_policy(body: bytes) -> Policy:
    """JSON → a checked policy, or an error that names the field."""
    return check_policy(read_json(_policy, body))


def policy_from(values: object) -> Policy:
    """A TOML table or a dict → a checked policy."""
    try:
        policy = msgspec.convert(values, Policy)
    except msgspec.ValidationError as exc:
        raise wire_error(exc, Policy) from exc
    return check_policy(policy)


def decode_suppression(body: bytes) -> Suppression:
    return check_suppression(read_json(_suppression, body))


def suppression_from(values: object) -> Suppression:
    return check_suppression(read_value(values, Suppression))


def check_policy_id(text: str) -> str:
    if not is_route_name(text):
        raise InvalidMessage(
            "id", "must be 1-100 letters, digits, _ . or -, the first a letter or digit"
        )
    return text


def check_policy(policy: Policy) -> Policy:
    """The same policy, or InvalidMessage naming the field that cannot work."""
    _check_common(policy)
    match policy:
        case Cap():
            _check_cap(policy)
        case Quiet():
            _check_quiet(policy)
        case Pace():
            _check_pace(policy)
    return policy


def check_suppression(suppression: Suppression) -> Suppression:
    for key in suppression.keys:
        if not is_key(key):
            raise InvalidMessage("keys", f"{key[:50]!r} is not 1-512 printable characters")
    if suppression.legal and suppression.bypass:
        raise InvalidMessage("bypass", "nothing bypasses a legal opt-out")
    _check_values("bypass", suppression.bypass)
    _check_applies_to(suppression.applies_to)
    return suppression


def parse_rate(text: str, field: str = "rate") -> Fraction:
    """ "50/s" "3000/m" "1/5s" → messages a millisecond."""
    match = _RATE.fullmatch(text) if len(text) <= 40 else None
    if match is None:
        raise InvalidMessage(field, 'must be a rate such as "50/s", "3000/m" or "1/5s"')
    per = parse_duration(f"{match[2] or 1}{match[3]}", field)
    number = Fraction(match[1])
    if number <= 0 or per <= 0:
        raise InvalidMessage(field, "must be more than 0")
    if per > MAX_WINDOW_MS:
        raise InvalidMessage(field, "is one in more than 400 days")
    rate = number / per
    if rate * 1000 > MAX_RATE:
        raise InvalidMessage(field, f"is more than {MAX_RATE:,}/s")
    return rate


def parse_wall(text: str, field: str) -> int:
    """ "22:00" → minutes of the day; "24:00" is its end."""
    match = _WALL.fullmatch(text)
    minutes = -1 if match is None else int(match[1]) * 60 + int(match[2])
    if not 0 <= minutes <= DAY_MINUTES:
        raise InvalidMessage(field, 'must be a wall time such as "08:00" or "22:30"')
    return minutes


def check_zone(zone: str | None, field: str) -> None:
    if zone is not None and not is_zone(zone):
        raise InvalidMessage(field, f"{zone[:50]!r} is not an IANA time zone")


def _check_common(policy: Policy) -> None:
    _check_applies_to(policy.applies_to)
    _check_values("bypass", policy.bypass)
    if policy.max_defer is not None:
        _positive(policy.max_defer, "max_defer")


def _check_cap(cap: Cap) -> None:
    if not cap.scope:
        raise InvalidMessage("scope", "needs at least one of key, channel, campaign, tag, route")
    if len(set(cap.scope)) != len(cap.scope):
        raise InvalidMessage("scope", "names the same thing twice")
    if cap.limit is None and cap.min_interval is None:
        raise InvalidMessage("limit", "is missing: give limit and window, or min_interval")
    if cap.limit is not None:
        if not 1 <= cap.limit <= MAX_LIMIT:
            raise InvalidMessage("limit", f"must be 1-{MAX_LIMIT:,}")
        if cap.window is None:
            raise InvalidMessage("window", "is missing: a limit needs one")
    elif cap.window is not None:
        raise InvalidMessage("limit", "is missing: a window needs one")
    if isinstance(cap.window, CalendarWindow):
        check_zone(cap.window.zone, "window.zone")
    elif cap.window is not None:
        _positive(cap.window, "window")
    if cap.min_interval is not None:
        _positive(cap.min_interval, "min_interval")


def _check_quiet(quiet: Quiet) -> None:
    start, end = parse_wall(quiet.from_, "from"), parse_wall(quiet.to, "to")
    if start == DAY_MINUTES:
        raise InvalidMessage("from", 'must be before the end of the day: use "00:00"')
    if start == end:
        raise InvalidMessage("to", "is the same as from: the quiet window is empty")
    if not quiet.days:
        raise InvalidMessage("days", "is empty: the policy would never be quiet")
    if len(set(quiet.days)) != len(quiet.days):
        raise InvalidMessage("days", "names the same day twice")
    if start == 0 and end == DAY_MINUTES and len(quiet.days) == len(EVERY_DAY):
        raise InvalidMessage("to", "leaves no moment of the week: nothing would ever go out")
    check_zone(quiet.zone, "zone")
    if parse_duration(quiet.spread, "spread") > MAX_WINDOW_MS:
        raise InvalidMessage("spread", "is longer than 400 days")


def _check_pace(pace: Pace) -> None:
    parse_rate(pace.rate)
    if pace.burst is not None and not 1 <= pace.burst <= MAX_BURST:
        raise InvalidMessage("burst", f"must be 1-{MAX_BURST:,}")


def _check_applies_to(applies_to: AppliesTo | None) -> None:
    if applies_to is None:
        return
    named = (
        ("route", applies_to.route),
        ("channel", applies_to.channel),
        ("campaign", applies_to.campaign),
        ("class", applies_to.class_),
        ("tag", applies_to.tag),
    )
    for name, values in named:
        if values is not None:
            field = f"applies_to.{name}"
            if not values:
                raise InvalidMessage(field, "is empty: nothing could match; leave it out")
            _check_values(field, values)


def _check_values(field: str, values: tuple[str, ...]) -> None:
    if len(values) > MAX_VALUES:
        raise InvalidMessage(field, f"has more than {MAX_VALUES:,} entries")
    for value in values:
        if not 1 <= len(value) <= 200 or not value.isprintable():
            raise InvalidMessage(field, "must be texts of 1-200 printable characters")


def _positive(value: str | float, field: str) -> int:
    millis = parse_duration(value, field)
    if not 0 < millis <= MAX_WINDOW_MS:
        raise InvalidMessage(field, "must be more than 0 and at most 400 days")
    return millis
