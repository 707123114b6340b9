"""Keyword arguments of the verbs, in one place for the engine and both clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from penstock.model.message import OnConflict
from penstock.model.room import RoomState
from penstock.model.state import State
from penstock.sdk.asked import Delay, LabelsLike, Moment


class MessageFields(TypedDict, total=False):
    """The fields of a message besides its payload."""

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


class OwnMessageFields(MessageFields, total=False):
    """The additional fields of a message scheduled in the engine's own program."""

    connection: object


class ChangeFields(TypedDict, total=False):
    """The fields of a waiting message that can be changed."""

    at: Moment | None
    delay: Delay | None
    payload: object
    headers: Mapping[str, str] | None
    expires: Moment | None
    priority: int | None
    labels: LabelsLike | None


class FilterFields(TypedDict, total=False):
    """Conditions on messages: all that are given must match. From `due_from` until before
    `due_to`.
    """

    state: State | str | None
    route: str | None
    key: str | None
    due_from: Moment | None
    due_to: Moment | None
    error: str | None


class RoomFields(TypedDict, total=False):
    """The settings of a room; one that is absent takes its default. A duration of None: never."""

    capacity: int
    admit_rate: str | float | None
    claim_ttl: Delay | None
    session_ttl: Delay | None
    wait_grace: Delay | None
    lanes: Mapping[str, int]
    lottery: bool
    seed: str
    opens_at: Moment | None
    public: bool
    state: RoomState | str | None


class QuestionFields(TypedDict, total=False):
    id: str | None
    route: str
    key: str
    labels: LabelsLike | None
    expires: Moment | None
