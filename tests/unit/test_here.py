"""A message for the engine in the same program is the message that a client would send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.draft import Draft, check_draft
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.identity import IdMaker
from penstock.model.message import NewMessage
from penstock.sdk.asked import draft_of
from penstock.sdk.fields import MessageFields
from penstock.sdk.here import local_draft

NOW = 1_900_000_000_000
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=zones | st.just(UTC)) | st.sampled_from(
    ["2040-01-01T00:00:00.0001Z", "tomorrow"]
)
payloads = st.sampled_from(
    [None, 1.5, float("nan"), "é", {"a": [1]}, b"\x00\xff", msgspec.Raw(b'"\xff"'), object()]
)
fields = st.fixed_dictionaries(
    {"payload": payloads},
    optional={
        "id": st.just("m"),
        "key": st.sampled_from(["k", "\0"]),
        "at": moments,
        "delay": st.sampled_from([0, 1.5, "15m", timedelta(days=1), -1]),
        "expires": moments,
        "content_type": st.sampled_from(["", "text/plain", "application/json", "é"]),
        "priority": st.sampled_from([0, 9, 10]),
        "headers": st.sampled_from([{"a": "b"}, {"penstock-x": "b"}]),
        "on_conflict": st.sampled_from(["keep", "replace", "sometimes"]),
    },
)


def _checked(make: Callable[..., Draft], asked: dict[str, Any]) -> NewMessage | str:
    try:
        return check_draft(make(asked.get("payload"), asked), NOW, IdMaker(Random(1)))
    except PenstockError as exc:
        return str(exc.field)


@given(fields)
def test_both_ways_make_the_same_message_or_name_a_field(asked: dict[str, Any]) -> None:
    here, there = _checked(local_draft, asked), _checked(draft_of, asked)
    if isinstance(here, str):
        assert isinstance(there, str)  # of two mistakes either may be told
        assert here in asked
    else:
        assert here == there


@pytest.mark.parametrize("name", sorted(MessageFields.__annotations__))
def test_every_field_there_is_can_be_given(name: str) -> None:
    given: dict[str, Any] = {"priority": 3, "headers": {}, "labels": {}, "delay": 1}
    given |= {
        "at": "2040-01-01T00:00:00Z",
        "expires": "2040-01-01T00:00:00Z",
        "on_conflict": "keep",
    }
    assert isinstance(_checked(local_draft, {name: given.get(name, "text")}), NewMessage)


class _Undecided(tzinfo):
    """A zone that does not say what its offset is."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str:
        return "?"


@pytest.mark.parametrize("zone", [None, _Undecided()])
def test_a_moment_without_an_offset_is_refused_with_the_remedy(zone: tzinfo | None) -> None:
    with pytest.raises(InvalidMessage, match="needs a time zone") as caught:
        local_draft(1, {"expires": datetime(2040, 1, 1, tzinfo=zone)})
    assert caught.value.field == "expires"
