"""Converts a program's arguments to a recurring rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from penstock.model.message import MAX_PAYLOAD
from penstock.model.recurrence import Misfire, Overlap, Rule, rule_from
from penstock.sdk.asked import Delay, LabelsLike, Moment, delay_value, labels_value, moment_text


class RuleFields(TypedDict, total=False):
    """The fields of a rule: when (`cron` in a `zone`, or `every` from an `anchor`), and its
    message.
    """

    cron: str
    every: Delay
    anchor: Moment | None
    zone: str
    route: str
    key: str | None
    payload: object
    content_type: str | None
    headers: Mapping[str, str] | None
    labels: LabelsLike | None
    priority: int
    expires_after: Delay | None
    start: Moment | None
    end: Moment | None
    limit: int | None
    jitter: Delay | None
    misfire: Misfire | str
    catch_up: Delay
    overlap: Overlap | str
    paused: bool


def rule_value(fields: Mapping[str, Any], *, max_payload: int = MAX_PAYLOAD) -> Rule:
    """The rule, checked; bytes as a payload are sent as they are."""
    said = {name: value for name, value in fields.items() if value is not None}
    for name in ("every", "expires_after", "jitter", "catch_up"):
        if name in said:
            said[name] = delay_value(said[name], name)
    for name in ("anchor", "start", "end"):
        if name in said:
            said[name] = moment_text(said[name], name)
    if "labels" in said:
        said["labels"] = labels_value(said["labels"])
    if isinstance(said.get("payload"), bytes | bytearray | memoryview):
        said["payload_base64"] = bytes(said.pop("payload"))
    elif "payload" in fields:
        said["payload"] = fields["payload"]
    return rule_from(said, max_payload=max_payload)
