"""Recurring rules: `PUT /v1/recurring/{id}`, their moments, and the pure steps of a rule's row.

A rule is a row with its next moment. Planting is `plant`: (row, now) → the moments to put as
messages and the row to write after that. A store writes the row only if it is unchanged
(compare-and-set on `revision`); a crash between the two repeats a put of known ids.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice, takewhile
from typing import Protocol
from zlib import crc32

import msgspec
from msgspec.structs import replace

from penstock.model.cron import cron
from penstock.model.draft import (
    check_headers,
    check_labels,
    check_priority,
    check_size,
    is_key,
    payload_bytes,
)
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.message import (
    DEFAULT_PRIORITY,
    DEFAULT_ROUTE,
    JSON,
    MAX_PAYLOAD,
    Labels,
    NewMessage,
)
from penstock.model.route import is_route_name
from penstock.model.times import (
    MAX_TIME,
    format_duration,
    format_moment,
    parse_duration,
    parse_moment,
)
from penstock.model.wire import read_json
from penstock.model.zone import DEFAULT_ZONE, is_zone

HEADER = "penstock-recurring"
"""Header of every occurrence: the id of its rule."""
AHEAD_MS = 750
"""An occurrence is planted this long before its moment, and never before the previous one is due:
it is as punctual as any message, and a change of the rule takes effect within that time. Moments
are whole seconds: the occurrences of the second before have a quarter of a second to leave first.
An occurrence that may be skipped or replace another (`overlap`) is planted at its moment, when that
is known."""
GRACE_MS = 5_000
"""A moment planted late by less than this is not missed: a process restart takes about as long."""
STEP = 500
"""Most occurrences of one rule that one step plants."""
NEXT = 5
"""Number of future moments shown."""
RECENT = 10
"""Number of past moments shown."""
MAX_BACKFILL = 10_000
MAX_LIMIT = 1_000_000_000
MAX_JITTER_MS = 86_400_000
MAX_PERIOD_MS = 400 * 86_400_000
"""Longest `every`, `expires_after` and `catch_up`."""
SECOND = 1_000
_NULL = b"null"
EPOCH = "1970-01-01T00:00:00Z"
"""The default anchor."""


class Misfire(StrEnum):
    """The fate of moments that passed while no process could plant them."""

    LATEST = "latest"  # only the last of them is planted
    SKIP = "skip"  # none is planted
    ALL = "all"  # every one within `catch_up` is planted


class Overlap(StrEnum):
    """The fate of a moment whose predecessor has not settled."""

    ALLOW = "allow"
    SKIP = "skip"  # it is not planted
    REPLACE = "replace"  # the previous occurrence is cancelled


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A rule as its author wrote it: when it fires, and which message it puts."""

    cron: str | None = None
    every: str | float | None = None
    anchor: str | None = None
    """The moment from which `every` is counted. Default: 1970-01-01T00:00:00Z."""
    zone: str = DEFAULT_ZONE
    """The zone of the wall clock that `cron` reads."""
    route: str = DEFAULT_ROUTE
    key: str | None = None
    """Default: the id of each occurrence."""
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload_base64: str | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    labels: Labels | None = None
    priority: int = DEFAULT_PRIORITY
    expires_after: str | float | None = None
    """Lifetime after its due (moment and jitter); one planted later than that is missed."""
    start: str | None = None
    end: str | None = None
    """The last possible moment; `start` and `end` are both included."""
    limit: int | None = None
    """Most occurrences planted in all."""
    jitter: str | float | None = None
    """Each occurrence is due within this time after its moment, at its own offset."""
    misfire: Misfire = Misfire.LATEST
    catch_up: str | float = "1d"
    """How far back `misfire: all` plants."""
    overlap: Overlap = Overlap.ALLOW
    paused: bool = False


class What(StrEnum):
    """The fate of one moment."""

    PLANTED = "planted"
    MISSED = "missed"
    SKIPPED = "skipped"
    TRIGGERED = "triggered"


class Recent(msgspec.Struct, frozen=True, array_like=True):
    at: int
    what: What


class RuleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule as a store holds it."""

    id: str
    rule: Rule
    version: int = 1
    """Counts callers' changes."""
    revision: int = 1
    """Counts every write of the row, for compare-and-set."""
    changed: int
    cursor: int
    """Every moment up to this one is accounted for: planted, missed, skipped, or not in force."""
    next: int | None = None
    """The first moment after the cursor; None if there is none."""
    wake: int | None = None
    """When the next moment is to be planted; None for never."""
    before: int | None = None
    """The moment of the last planted occurrence."""
    planted: int = 0
    missed: int = 0
    skipped: int = 0
    recent: tuple[Recent, ...] = ()
    error: str | None = None
    """Why the rule cannot be planted; planting is retried."""
    source: str | None = None
    """Digest of the settings that define the rule; None if it was put by the API."""
    managed: bool = False
    """True: the rule is deleted once the settings no longer define it."""


_rule = msgspec.json.Decoder(Rule)
_row = msgspec.json.Decoder(RuleRow)
encode_row = msgspec.json.Encoder().encode


def decode_row(data: bytes) -> RuleRow:
    """Decode the output of `encode_row`."""
    return _row.decode(data)


def decode_rule(body: bytes, *, max_payload: int = MAX_PAYLOAD) -> Rule:
    """JSON → a checked rule, or an error that names the field."""
    return check_rule(read_json(_rule, body), max_payload=max_payload)


def rule_from(values: object, *, max_payload: int = MAX_PAYLOAD) -> Rule:
    """A TOML table or a mapping → a checked rule."""
    return check_rule(read_rule(values), max_payload=max_payload)


def read_rule(values: object) -> Rule:
    """A TOML table or a mapping → a rule that is yet to be checked."""
    try:
        body = msgspec.json.encode(values)
    except TypeError as exc:
        raise InvalidMessage("payload", f"is not JSON: {exc}") from exc
    return read_json(_rule, body)


def digest(rule: Rule) -> str:
    """A digest that is equal for equal rules, in every process."""
    return hashlib.sha256(msgspec.json.encode(rule)).hexdigest()[:16]


def canonical(rule: Rule) -> Rule:
    """The rule with every default filled in and every value in one form.

    Two rules are the same if their canonical forms are equal, however their authors wrote them.
    """
    body, content_type = rule_body(rule)
    return replace(
        rule,
        cron=None if rule.cron is None else " ".join(rule.cron.lower().split()),
        every=_same_span(rule.every, "every"),
        anchor=None if rule.every is None else moment_text(rule.anchor or EPOCH, "anchor"),
        payload=msgspec.UNSET,
        payload_base64=b64encode(body).decode(),
        content_type=content_type,
        headers=rule.headers or None,
        labels=None if rule.labels == Labels() else rule.labels,
        expires_after=_same_span(rule.expires_after, "expires_after"),
        start=moment_text(rule.start, "start"),
        end=moment_text(rule.end, "end"),
        jitter=_same_span(rule.jitter or 0, "jitter"),
        catch_up=format_duration(parse_duration(rule.catch_up, "catch_up")),
    )


def moment_text(written: str | None, field: str) -> str | None:
    """A moment in RFC 3339 in UTC with milliseconds, as answers have it."""
    return None if written is None else format_moment(parse_moment(written, field))


def _same_span(written: str | float | None, field: str) -> str | None:
    return None if written is None else format_duration(parse_duration(written, field))


def check_rule_id(text: str) -> str:
    if not is_route_name(text):
        raise InvalidMessage(
            "id", "must be 1-100 letters, digits, _ . or -, the first a letter or digit"
        )
    return text


# --- validation


def check_rule(rule: Rule, *, max_payload: int = MAX_PAYLOAD) -> Rule:
    """The same rule, or InvalidMessage naming the first field that cannot work."""
    for problem in problems_in(rule, max_payload=max_payload):
        raise problem
    return rule


def check_moments(rule: Rule) -> None:
    """Check the moments: cron in a zone, or a fixed interval from an anchor."""
    for problem in _problems(rule, _MOMENT_CHECKS):
        raise problem


def problems_in(rule: Rule, *, max_payload: int = MAX_PAYLOAD) -> Iterator[PenstockError]:
    """Every reason why the rule cannot work, each with its field."""
    yield from _problems(rule, _MOMENT_CHECKS)
    yield from _problems(rule, (partial(_check_message, max_payload=max_payload),))
    yield from _problems(rule, _OPTION_CHECKS)


def _problems(rule: Rule, checks: Iterable[Callable[[Rule], None]]) -> Iterator[PenstockError]:
    for check in checks:
        try:
            check(rule)
        except PenstockError as exc:
            yield exc


def _check_kind(rule: Rule) -> None:
    if (rule.cron is None) == (rule.every is None):
        wrong = "cron" if rule.cron is None else "every"
        raise InvalidMessage(wrong, "give either cron or every, and only one of them")


def _check_zone(rule: Rule) -> None:
    if not is_zone(rule.zone):
        raise InvalidMessage("zone", f"{rule.zone[:50]!r} is not an IANA time zone")
    if rule.cron is None and rule.zone != DEFAULT_ZONE:
        raise InvalidMessage("zone", "is for cron; every is counted from its anchor")


def _check_cron(rule: Rule) -> None:
    if rule.cron is not None:
        zone = rule.zone if is_zone(rule.zone) else DEFAULT_ZONE
        cron(rule.cron, zone).check_it_comes()


def _check_anchor(rule: Rule) -> None:
    if rule.anchor is None:
        return
    if rule.cron is not None:
        raise InvalidMessage("anchor", "is for every; cron has moments of its own")
    if parse_moment(rule.anchor, "anchor") % SECOND:
        raise InvalidMessage("anchor", "must be a whole second")


def _check_every(rule: Rule) -> None:
    if rule.every is None:
        return
    period = parse_duration(rule.every, "every")
    if period < SECOND:
        raise InvalidMessage("every", "must be at least 1s")
    if period > MAX_PERIOD_MS or period % SECOND:
        raise InvalidMessage("every", "must be whole seconds, at most 400 days")


def _check_bounds(rule: Rule) -> None:
    start = None if rule.start is None else parse_moment(rule.start, "start")
    end = None if rule.end is None else parse_moment(rule.end, "end")
    if start is not None and end is not None and end < start:
        raise InvalidMessage("end", "is before start")


_MOMENT_CHECKS = (_check_kind, _check_zone, _check_cron, _check_every, _check_anchor, _check_bounds)


def _check_limit(rule: Rule) -> None:
    if rule.limit is not None and not 1 <= rule.limit <= MAX_LIMIT:
        raise InvalidMessage("limit", f"must be 1-{MAX_LIMIT:,}")


def _check_jitter(rule: Rule) -> None:
    if rule.jitter is not None and parse_duration(rule.jitter, "jitter") > MAX_JITTER_MS:
        raise InvalidMessage("jitter", "must be at most 1d")


def _check_catch_up(rule: Rule) -> None:
    _check_span(rule.catch_up, "catch_up", least=0)


def _check_expiry(rule: Rule) -> None:
    if rule.expires_after is not None:
        _check_span(rule.expires_after, "expires_after", least=1)


_OPTION_CHECKS = (_check_limit, _check_jitter, _check_catch_up, _check_expiry)


def _check_span(value: str | float, field: str, *, least: int) -> None:
    if not least <= parse_duration(value, field) <= MAX_PERIOD_MS:
        raise InvalidMessage(field, "must be more than 0 and at most 400 days")


def _check_message(rule: Rule, max_payload: int) -> None:
    if not is_route_name(rule.route):
        raise InvalidMessage("route", "must be 1-100 letters, digits, _ . or -")
    if rule.key is not None and not is_key(rule.key):
        raise InvalidMessage("key", "must be 1-512 printable characters")
    check_size(rule_body(rule)[0], max_payload)
    check_priority(rule.priority)
    check_headers(rule.headers or {})
    if rule.labels is not None:
        check_labels(rule.labels)


def rule_body(rule: Rule) -> tuple[bytes, str]:
    """The payload of a rule's occurrences, and its content type."""
    body = payload_bytes(rule.payload, rule.payload_base64, rule.content_type)
    return (_NULL, rule.content_type or JSON) if body is None else body


# --- moments


class Schedule(Protocol):
    """An endless or finite sequence of moments in epoch seconds."""

    def after(self, moment: int) -> Iterator[int]:
        """Every moment after this one, in order."""
        ...

    def first_after(self, moment: int) -> int | None:
        """The first moment after this one, or None."""
        ...

    def count(self, after: int, until: int) -> int:
        """Number of moments in (after, until]."""
        ...

    def latest(self, after: int, until: int) -> int | None:
        """The last moment in (after, until], or None."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Moments at a fixed interval from an anchor."""

    period: int
    anchor: int

    def after(self, moment: int) -> Iterator[int]:
        moment = self._at(self._number(moment))
        while moment * SECOND <= MAX_TIME:
            yield moment
            moment += self.period

    def first_after(self, moment: int) -> int | None:
        return next(self.after(moment), None)

    def count(self, after: int, until: int) -> int:
        return max(0, self._number(until) - self._number(after))

    def latest(self, after: int, until: int) -> int | None:
        found = self._at(self._number(until) - 1)
        return found if found > after and found >= self.anchor else None

    def _number(self, moment: int) -> int:
        """Number of moments up to and including this one."""
        return max(0, (moment - self.anchor) // self.period + 1)

    def _at(self, number: int) -> int:
        return self.anchor + number * self.period


class Moments:
    """The moments of one rule in epoch milliseconds, within its start and end."""

    def __init__(self, rule: Rule) -> None:
        self._first = 0 if rule.start is None else parse_moment(rule.start, "start")
        self._last = MAX_TIME if rule.end is None else parse_moment(rule.end, "end")
        self._schedule: Schedule
        if rule.cron is not None:
            self._schedule = cron(rule.cron, rule.zone)
        else:
            anchor = 0 if rule.anchor is None else parse_moment(rule.anchor, "anchor")
            period = parse_duration(rule.every or 0, "every")
            self._schedule = Every(period // SECOND, anchor // SECOND)

    def after(self, moment: int) -> Iterator[int]:
        """Every moment after this one, in order."""
        found = (at * SECOND for at in self._schedule.after(self._floor(moment)))
        return takewhile(lambda at: at <= self._last, found)

    def first_after(self, moment: int) -> int | None:
        found = self._schedule.first_after(self._floor(moment))
        return None if found is None or found * SECOND > self._last else found * SECOND

    def count(self, after: int, until: int) -> int:
        """Number of moments in (after, until]."""
        return self._schedule.count(self._floor(after), min(until, self._last) // SECOND)

    def latest(self, after: int, until: int) -> int | None:
        """The last moment in (after, until], or None."""
        found = self._schedule.latest(self._floor(after), min(until, self._last) // SECOND)
        return None if found is None else found * SECOND

    def has(self, moment: int) -> bool:
        return self.count(moment - 1, moment) > 0

    def _floor(self, moment: int) -> int:
        """The second after which moments count: the given one, or just before the rule's start."""
        return max(moment, self._first - 1) // SECOND


def words(rule: Rule) -> str:
    """The rule's moments in English."""
    if rule.cron is not None:
        return f"{cron(rule.cron, rule.zone).words()} ({rule.zone})"
    said = f"Every {_period_words(parse_duration(rule.every or 0, 'every'))}"
    anchor = moment_text(rule.anchor, "anchor")
    return said if anchor is None else f"{said}, counted from {anchor}"


_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))


def _period_words(period: int) -> str:
    for unit, name in _UNITS:
        if period % unit == 0:
            return name if period == unit else f"{period // unit} {name}s"
    return f"{period} ms"


# --- occurrences


def occurrence_id(rule_id: str, moment: int) -> str:
    """The id of a moment's occurrence; milliseconds show only if it was triggered by hand."""
    text = format_moment(moment)
    return f"{rule_id}@{text[:19]}Z" if moment % SECOND == 0 else f"{rule_id}@{text}"


def occurrence(row: RuleRow, moment: int, due: int | None = None) -> NewMessage:
    """The message of a moment; `due` overrides the time that the rule gives."""
    rule = row.rule
    name = occurrence_id(row.id, moment)
    payload, content_type = rule_body(rule)
    if due is None:
        due = moment + jitter_of(row.id, rule, moment)
    after = rule.expires_after
    return NewMessage(
        id=name,
        route=rule.route,
        key=rule.key or name,
        payload=payload,
        due=due,
        content_type=content_type,
        headers={**(rule.headers or {}), HEADER: row.id},
        expires=None if after is None else due + parse_duration(after, "expires_after"),
        priority=rule.priority,
        labels=rule.labels,
    )


def jitter_of(rule_id: str, rule: Rule, moment: int) -> int:
    """The occurrence's offset within the jitter: a hash, the same in every process."""
    if rule.jitter is None:
        return 0
    width = parse_duration(rule.jitter, "jitter")
    return crc32(f"{rule_id}@{moment}".encode()) % (width + 1)


# --- steps of a row


class Planting(msgspec.Struct, frozen=True):
    """The work of one step: first `cancel`, then put `moments`, then write `row`."""

    moments: tuple[int, ...]
    row: RuleRow
    cancel: int | None = None
    """The moment whose occurrence is to be cancelled, because another replaces it."""


def needs_state(row: RuleRow) -> bool:
    """Whether planting depends on the state of the previous occurrence."""
    return row.rule.overlap is not Overlap.ALLOW and row.before is not None


def plant(row: RuleRow, now: int, *, unsettled: bool = False, ahead: int = AHEAD_MS) -> Planting:
    """Everything of the row that is due for planting at `now`.

    `unsettled` says that the previous occurrence (`row.before`) has not settled.
    """
    rule = row.rule
    if row.next is None or rule.paused:
        return Planting((), aimed(replace(row, revision=row.revision + 1)))
    moments = Moments(rule)
    found, cursor, missed = _overdue(row, moments, now)
    if ahead and rule.overlap is Overlap.ALLOW and cursor <= now and len(found) < STEP:
        coming = row.next if row.next > now else moments.first_after(max(cursor, now))
        if coming is not None and coming <= now + ahead:
            found.append(coming)
            cursor = coming
    fresh = [at for at in found if not _has_expired(row, at, now)]
    missed += len(found) - len(fresh)
    chosen, skipped = _without_overlap(rule.overlap, fresh, unsettled)
    if rule.limit is not None:
        chosen = chosen[: rule.limit - row.planted]  # the rule ends with the last of them
    cancel = row.before if unsettled and rule.overlap is Overlap.REPLACE and chosen else None
    after = replace(
        row,
        revision=row.revision + 1,
        cursor=cursor,
        before=chosen[-1] if chosen else row.before,
        planted=row.planted + len(chosen),
        missed=row.missed + missed,
        skipped=row.skipped + skipped,
        recent=_recent(
            row, chosen, fresh if skipped else chosen, cursor if missed and not fresh else None
        ),
        error=None,
    )
    return Planting(tuple(chosen), aimed(after, moments), cancel)


def _overdue(row: RuleRow, moments: Moments, now: int) -> tuple[list[int], int, int]:
    """Moments of (cursor, now] to plant, the moment accounted for up to, and the number missed."""
    if row.next is None or row.next > now:
        return [], row.cursor, 0
    latest = moments.latest(row.cursor, now)
    if latest is None:
        return [], row.cursor, 0
    if row.rule.misfire is Misfire.ALL:
        reach = max(row.cursor, now - parse_duration(row.rule.catch_up, "catch_up") - 1)
        found = list(islice(takewhile(lambda at: at <= now, moments.after(reach)), STEP + 1))
        missed = moments.count(row.cursor, reach)
        if len(found) > STEP:
            return found[:STEP], found[STEP - 1], missed
        return found, latest, missed
    missed = moments.count(row.cursor, latest) - 1
    if row.rule.misfire is Misfire.SKIP and now - latest > GRACE_MS:
        return [], latest, missed + 1
    return [latest], latest, missed


def _has_expired(row: RuleRow, moment: int, now: int) -> bool:
    after = row.rule.expires_after
    if after is None:
        return False
    due = moment + jitter_of(row.id, row.rule, moment)
    return due + parse_duration(after, "expires_after") <= now


def _without_overlap(
    overlap: Overlap, moments: list[int], unsettled: bool
) -> tuple[list[int], int]:
    """The moments to plant, and the number skipped because another occurrence has not settled."""
    if overlap is Overlap.ALLOW or not moments:
        return moments, 0
    if overlap is Overlap.REPLACE:
        return moments[-1:], len(moments) - 1
    return ([], len(moments)) if unsettled else (moments[:1], len(moments) - 1)


def _recent(
    row: RuleRow, chosen: list[int], found: list[int], missed: int | None
) -> tuple[Recent, ...]:
    planted = set(chosen)
    news = [Recent(at, What.PLANTED if at in planted else What.SKIPPED) for at in found]
    if missed is not None:
        news.append(Recent(missed, What.MISSED))
    return (*row.recent, *news)[-RECENT:]


def aimed(row: RuleRow, moments: Moments | None = None) -> RuleRow:
    """The row with its next moment, and with the time at which that is to be planted."""
    rule = row.rule
    if rule.limit is not None and row.planted >= rule.limit:
        return replace(row, next=None, wake=None)
    coming = (Moments(rule) if moments is None else moments).first_after(row.cursor)
    if coming is None or rule.paused:
        return replace(row, next=coming, wake=None)
    ahead = AHEAD_MS if rule.overlap is Overlap.ALLOW else 0
    return replace(row, next=coming, wake=max(coming - ahead, row.cursor))


def failed(row: RuleRow, error: str, again_at: int) -> RuleRow:
    """The row of a rule that cannot be planted: it shows why, and waits until `again_at`.

    Its cursor stays: once it can be planted again, `misfire` decides about the moments that passed.
    """
    return replace(row, revision=row.revision + 1, error=error, wake=again_at)


def change(
    row: RuleRow | None,
    rule_id: str,
    rule: Rule,
    now: int,
    *,
    source: str | None = None,
    managed: bool = False,
) -> RuleRow:
    """The row with another rule: the same object if nothing changes.

    The version stays while the rule means the same; only where it is defined may then differ.

    The new rule is in force after `now`, and after an occurrence that was planted ahead: no moment
    is planted by both, and no moment that both have is left out. The caller has planted the moments
    due before. Those that a rule with an `error` could not plant are left to the `misfire` of the
    new one if both fire at the same moments; otherwise they count as missed.
    """
    if row is None:
        made = RuleRow(
            id=rule_id, rule=rule, changed=now, cursor=now, source=source, managed=managed
        )
        return aimed(made)
    so_far, wanted = canonical(row.rule), canonical(rule)
    if (so_far, row.source, row.managed) == (wanted, source, managed):
        return row
    goes_on = row.error is not None and not rule.paused and _when(so_far) == _when(wanted)
    return aimed(
        replace(
            row,
            rule=rule,
            version=row.version + (so_far != wanted),
            revision=row.revision + 1,
            changed=now,
            cursor=row.cursor if goes_on else max(row.cursor, now),
            missed=row.missed + (0 if goes_on else _left_over(row, now)),
            error=None,
            source=source,
            managed=managed,
        )
    )


def _when(rule: Rule) -> tuple[object, ...]:
    """Everything that the moments of a canonical rule depend on."""
    return (rule.cron, rule.every, rule.anchor, rule.zone, rule.start, rule.end, rule.paused)


def _left_over(row: RuleRow, now: int) -> int:
    """Number of the rule's moments up to `now` that could not be planted."""
    if row.rule.paused or row.next is None or row.next > now:
        return 0
    return Moments(row.rule).count(row.cursor, now)


def overdue(row: RuleRow, now: int) -> bool:
    """Whether an unplanted moment has come."""
    return not row.rule.paused and row.next is not None and row.next <= now


def noted(row: RuleRow, moment: int, what: What) -> RuleRow:
    """The row with one more line in its recent moments."""
    recent = (*row.recent, Recent(moment, what))[-RECENT:]
    return replace(row, revision=row.revision + 1, recent=recent)


def backfilled(row: RuleRow, moments: list[int]) -> RuleRow:
    """The row that shows these moments among its recent ones, as far as they are the latest."""
    shown = {one.at: one for one in row.recent}
    shown |= {at: Recent(at, What.PLANTED) for at in moments[-RECENT:]}
    recent = tuple(shown[at] for at in sorted(shown))[-RECENT:]
    return replace(row, revision=row.revision + 1, recent=recent)


def backfill(row: RuleRow, first: int, last: int, now: int) -> list[int]:
    """The rule's moments in [first, last], whether or not it was in force then."""
    if last < first:
        raise InvalidMessage("to", "is before from")
    if last > now:
        raise InvalidMessage("to", "is in the future: those moments are planted when they come")
    moments = Moments(row.rule)
    number = moments.count(first - 1, last)
    if number > MAX_BACKFILL:
        raise InvalidMessage("to", f"has {number:,} moments since from; at most {MAX_BACKFILL:,}")
    return list(islice(moments.after(first - 1), number))


def upcoming(row: RuleRow, now: int, number: int = NEXT) -> list[int]:
    """The next moments to be planted, or already planted ahead; of a paused rule, as if resumed."""
    if row.rule.limit is not None:
        number = min(number, row.rule.limit - row.planted + (row.cursor > now))
    return list(islice(Moments(row.rule).after(now), max(0, number)))
