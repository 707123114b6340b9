"""What the server and the client of the gRPC API translate alike: moments, labels, words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.model.errors import InvalidMessage
from penstock.model.message import Labels, OnConflict
from penstock.model.state import State
from penstock.model.times import check_range
from penstock.v1 import scheduler_pb2 as pb

STATES = {state: cast("pb.State", pb.State.Value(f"STATE_{state.name}")) for state in State}
CONFLICTS = {
    word: cast("pb.OnConflict", pb.OnConflict.Value(f"ON_CONFLICT_{word.name}"))
    for word in OnConflict
}
MAX_NANOS = 999_999_999
_NO_LABELS = Labels()


def moment(at: int) -> Timestamp:
    """Epoch ms → a Timestamp."""
    whole, rest = divmod(at, 1000)
    return Timestamp(seconds=whole, nanos=rest * 1_000_000)


def millis(at: Timestamp, field: str) -> int:
    """A Timestamp → epoch ms, rounded up."""
    if not 0 <= at.nanos <= MAX_NANOS:
        raise InvalidMessage(field, "has nanos outside 0 … 999999999")
    return check_range(at.seconds * 1000 - (-at.nanos // 1_000_000), field)


def labels_of(given: pb.Labels) -> Labels | None:
    """None where all of them are empty."""
    found = Labels(
        channel=given.channel or None,
        campaign=given.campaign or None,
        class_=getattr(given, "class") or None,
        tags=tuple(given.tags),
        tz=given.tz or None,
        keys=tuple(given.keys),
    )
    return None if found == _NO_LABELS else found


def labels_out(labels: Labels) -> pb.Labels:
    given: Mapping[str, object] = msgspec.to_builtins(labels)  # what is unset is left out
    return pb.Labels(**given)  # type: ignore[arg-type] # `class` can be named in no other way
