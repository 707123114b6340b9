"""The fields of a message as keyword arguments, in one place for every verb that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from penstock.model.message import OnConflict
from penstock.sdk.asked import Delay, LabelsLike, Moment


class MessageFields(TypedDict, total=False):
    route: str
    at: Moment | None
    delay: Delay | None
    id: str | None
    key: str | None
    headers: Mapping[str, str] | None
    expires: Moment | None
    priority: int
    labels: LabelsLike | None
    topic: str | None
    content_type: str | None
    on_conflict: OnConflict | str
