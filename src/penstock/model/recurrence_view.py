"""Recurring rules as shown to callers: the JSON of /v1/recurring."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.model.message import Labels, Message
from penstock.model.recurrence import (
    Misfire,
    Overlap,
    Recent,
    Rule,
    RuleRow,
    What,
    change,
    moment_text,
    occurrence_id,
    rule_body,
    upcoming,
    words,
)
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.model.wire import read_json


class RuleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"  # there is no moment left
    DEAD = "dead"  # planting failed: `error` says why


class RulePut(msgspec.Struct, frozen=True):
    """The answer to a put: the rule is durable."""

    id: str
    version: int
    next: list[str]
    words: str


class Preview(msgspec.Struct, frozen=True):
    """The next firing times of a rule."""

    next: list[str]
    words: str


class Triggered(msgspec.Struct, frozen=True):
    """The message put by a trigger."""

    id: str


class Backfilled(msgspec.Struct, frozen=True):
    """Number of occurrences that a backfill put; those that existed before are not counted."""

    planted: int


class BackfillIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The span of past moments to plant, both ends included."""

    from_: str = msgspec.field(name="from")
    to: str


_backfill = msgspec.json.Decoder(BackfillIn)


def decode_backfill(body: bytes) -> BackfillIn:
    return read_json(_backfill, body)


class RuleDeleted(msgspec.Struct, frozen=True):
    """The deleted rule; its messages stay."""

    id: str
    deleted: bool = True


class OccurrenceOut(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one moment."""

    at: str
    what: What
    id: str | None
    """The message's id; None if none was planted."""
    state: State | None
    """The message's state; None if there is no message, or it was purged."""
    late: int | None
    """Milliseconds from its due to the last time it was claimed to be sent."""


class RecurringOut(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and its recent moments."""

    id: str
    version: int
    state: RuleState
    error: str | None
    cron: str | None
    every: str | float | None
    anchor: str | None
    zone: str
    route: str
    key: str | None
    payload_json: msgspec.Raw | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="payload"
    )
    payload_base64: str | msgspec.UnsetType = msgspec.UNSET
    content_type: str | None
    headers: dict[str, str]
    labels: Labels
    priority: int
    expires_after: str | float | None
    start: str | None
    end: str | None
    limit: int | None
    jitter: str | float | None
    misfire: Misfire
    catch_up: str | float
    overlap: Overlap
    paused: bool
    managed: bool
    words: str
    next: list[str]
    planted: int
    missed: int
    skipped: int
    last: list[OccurrenceOut] | msgspec.UnsetType = msgspec.UNSET
    """The latest moments, newest first; absent in lists."""

    @property
    def payload(self) -> bytes:
        """The payload of each message, as a Message has it."""
        return rule_body(rule_of(self))[0]


class RulePage(msgspec.Struct, frozen=True):
    """Rules in the order of their ids; `next` is the cursor of the page after."""

    items: list[RecurringOut]
    next: str | None


def page_of(page: RulePage) -> tuple[list[RecurringOut], str | None]:
    """A page as clients return it: the rules, and the cursor of the next page."""
    return page.items, page.next


def state_of(row: RuleRow) -> RuleState:
    if row.error is not None:
        return RuleState.DEAD
    if row.next is None:
        return RuleState.ENDED
    return RuleState.PAUSED if row.rule.paused else RuleState.ACTIVE


def rule_put(row: RuleRow, now: int) -> RulePut:
    return RulePut(row.id, row.version, moments(upcoming(row, now)), words(row.rule))


def preview_of(rule: Rule, now: int) -> Preview:
    """The firing times of a rule after `now`, and the rule in English."""
    return Preview(moments(upcoming(change(None, "preview", rule, now), now)), words(rule))


def moments(found: list[int]) -> list[str]:
    return list(map(format_moment, found))


def rule_out(row: RuleRow, now: int, messages: Mapping[str, Message] | None = None) -> RecurringOut:
    """A row as JSON shows it, with the `messages` of its last occurrences; None omits them."""
    rule = row.rule
    return RecurringOut(
        id=row.id,
        version=row.version,
        state=state_of(row),
        error=row.error,
        cron=rule.cron,
        every=rule.every,
        anchor=moment_text(rule.anchor, "anchor"),
        zone=rule.zone,
        route=rule.route,
        key=rule.key,
        payload_json=rule.payload,
        payload_base64=msgspec.UNSET if rule.payload_base64 is None else rule.payload_base64,
        content_type=rule.content_type,
        headers=rule.headers or {},
        labels=rule.labels or Labels(),
        priority=rule.priority,
        expires_after=rule.expires_after,
        start=moment_text(rule.start, "start"),
        end=moment_text(rule.end, "end"),
        limit=rule.limit,
        jitter=rule.jitter,
        misfire=rule.misfire,
        catch_up=rule.catch_up,
        overlap=rule.overlap,
        paused=rule.paused,
        managed=row.managed,
        words=words(rule),
        next=moments(upcoming(row, now)),
        planted=row.planted,
        missed=row.missed,
        skipped=row.skipped,
        last=msgspec.UNSET
        if messages is None
        else [_occurrence(row.id, one, messages) for one in reversed(row.recent) if one.at <= now],
    )


def recent_ids(row: RuleRow) -> list[str]:
    """The ids of a rule's last occurrences."""
    return [occurrence_id(row.id, one.at) for one in row.recent if _has_message(one)]


def rule_of(shown: RecurringOut) -> Rule:
    """The rule from its shown form; its moments are in UTC."""
    fields = {name: getattr(shown, name) for name in Rule.__struct_fields__ if name != "payload"}
    fields["payload"] = shown.payload_json
    if fields["payload_base64"] is msgspec.UNSET:
        fields["payload_base64"] = None
    labels = None if shown.labels == Labels() else shown.labels
    return Rule(**fields | {"headers": shown.headers or None, "labels": labels})


def _occurrence(rule_id: str, one: Recent, messages: Mapping[str, Message]) -> OccurrenceOut:
    name = occurrence_id(rule_id, one.at) if _has_message(one) else None
    message = None if name is None else messages.get(name)
    sent = None if message is None else message.claimed
    return OccurrenceOut(
        at=format_moment(one.at),
        what=one.what,
        id=name,
        state=None if message is None else message.state,
        late=None if message is None or sent is None else sent - message.due,
    )


def _has_message(one: Recent) -> bool:
    return one.what in (What.PLANTED, What.TRIGGERED)
