"""Converts recurring rules between the proto and the model; an empty field counts as absent."""

from __future__ import annotations

import base64

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.api.grpc.shapes import seconds
from penstock.model.errors import InvalidMessage
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE, JSON
from penstock.model.recurrence import Misfire, Overlap, Rule, rule_body
from penstock.model.recurrence_view import OccurrenceOut, RecurringOut, RulePut
from penstock.model.recurrence_view import rule_of as rule_in
from penstock.model.times import format_duration, format_moment, parse_duration, parse_moment
from penstock.model.zone import DEFAULT_ZONE
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.values import STATES, labels_of, labels_out, millis, moment

_MISFIRES = {
    pb.MISFIRE_UNSPECIFIED: Misfire.LATEST,
    pb.MISFIRE_LATEST: Misfire.LATEST,
    pb.MISFIRE_SKIP: Misfire.SKIP,
    pb.MISFIRE_ALL: Misfire.ALL,
}
_OVERLAPS = {
    pb.OVERLAP_UNSPECIFIED: Overlap.ALLOW,
    pb.OVERLAP_ALLOW: Overlap.ALLOW,
    pb.OVERLAP_SKIP: Overlap.SKIP,
    pb.OVERLAP_REPLACE: Overlap.REPLACE,
}
_CATCH_UP = "1d"


def rule_of(asked: pb.RecurringRule) -> Rule:
    """The rule of a request; the model checks it."""
    if asked.misfire not in _MISFIRES or asked.overlap not in _OVERLAPS:
        field = "misfire" if asked.misfire not in _MISFIRES else "overlap"
        raise InvalidMessage(field, "is not a word that this server knows")
    is_json = asked.content_type == JSON
    return Rule(
        cron=asked.cron or None,
        every=_span(asked.every, "every") if asked.HasField("every") else None,
        anchor=_text(asked.anchor, "anchor") if asked.HasField("anchor") else None,
        zone=asked.zone or DEFAULT_ZONE,
        route=asked.route or DEFAULT_ROUTE,
        key=asked.key or None,
        payload=_json(asked.payload) if is_json and asked.payload else msgspec.UNSET,
        payload_base64=None if is_json else base64.b64encode(asked.payload).decode(),
        content_type=asked.content_type or None,
        headers=dict(asked.headers) or None,
        labels=labels_of(asked.labels) if asked.HasField("labels") else None,
        priority=asked.priority if asked.HasField("priority") else DEFAULT_PRIORITY,
        expires_after=_span(asked.expires_after, "expires_after")
        if asked.HasField("expires_after")
        else None,
        start=_text(asked.start, "start") if asked.HasField("start") else None,
        end=_text(asked.end, "end") if asked.HasField("end") else None,
        limit=asked.limit if asked.HasField("limit") else None,
        jitter=_span(asked.jitter, "jitter") if asked.HasField("jitter") else None,
        misfire=_MISFIRES[asked.misfire],
        catch_up=_span(asked.catch_up, "catch_up") if asked.HasField("catch_up") else _CATCH_UP,
        overlap=_OVERLAPS[asked.overlap],
        paused=asked.paused,
    )


def put_of(put: RulePut, *, made: bool) -> pb.PutRecurringResponse:
    return pb.PutRecurringResponse(
        id=put.id, version=put.version, next=_moments(put.next), words=put.words, made=made
    )


def recurring_of(shown: RecurringOut) -> pb.Recurring:
    """The rule as it is stored, and its latest results."""
    last = () if shown.last is msgspec.UNSET else shown.last
    return pb.Recurring(
        id=shown.id,
        version=shown.version,
        rule=_rule_out(rule_in(shown)),
        state=shown.state,
        error=shown.error,
        words=shown.words,
        next=_moments(shown.next),
        planted=shown.planted,
        missed=shown.missed,
        skipped=shown.skipped,
        last=[_occurrence(one) for one in last],
    )


def _rule_out(rule: Rule) -> pb.RecurringRule:
    payload, content_type = rule_body(rule)
    return pb.RecurringRule(
        cron=rule.cron,
        every=_duration(rule.every),
        anchor=_moment(rule.anchor),
        zone=rule.zone,
        route=rule.route,
        key=rule.key,
        payload=payload,
        content_type=content_type,
        headers=rule.headers,
        labels=None if rule.labels is None else labels_out(rule.labels),
        priority=rule.priority,
        expires_after=_duration(rule.expires_after),
        start=_moment(rule.start),
        end=_moment(rule.end),
        limit=rule.limit,
        jitter=_duration(rule.jitter),
        misfire=getattr(pb, f"MISFIRE_{rule.misfire.upper()}"),
        catch_up=_duration(rule.catch_up),
        overlap=getattr(pb, f"OVERLAP_{rule.overlap.upper()}"),
        paused=rule.paused,
    )


def _occurrence(one: OccurrenceOut) -> pb.Occurrence:
    state = pb.STATE_UNSPECIFIED if one.state is None else STATES[one.state]
    return pb.Occurrence(at=_moment(one.at), what=one.what, id=one.id, state=state)


def _json(payload: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidMessage("payload", f"is not JSON, as its content type says: {exc}") from exc
    return msgspec.Raw(payload)


def _span(span: Duration, field: str) -> str:
    try:
        return format_duration(parse_duration(seconds(span), field))
    except InvalidMessage as exc:
        raise InvalidMessage(field, exc.reason) from exc


def _text(at: Timestamp, field: str) -> str:
    return format_moment(millis(at, field))


def _duration(written: str | float | None) -> Duration | None:
    if written is None:
        return None
    span = Duration()
    span.FromMilliseconds(parse_duration(written))
    return span


def _moment(written: str | None) -> Timestamp | None:
    return None if written is None else moment(parse_moment(written))


def _moments(written: list[str]) -> list[Timestamp]:
    return [moment(parse_moment(one)) for one in written]
