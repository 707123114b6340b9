"""DynamoDB settles a delivered message without reading it: the same as `lifecycle.settle`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.message import NewMessage
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.stores.dynamodb.items import (
    Item,
    Shape,
    first_record,
    next_item,
    next_record,
    to_item,
)
from penstock.stores.dynamodb.session import Session
from penstock.stores.dynamodb.settle import Settling
from penstock.stores.dynamodb.table import Change

SHAPE, RETENTION, DUE, NOW, TOKEN = Shape(60_000, 4), 5_000, 1_000, 1_500, 9


def applied(item: Item, change: Change) -> Item:
    return {k: v for k, v in {**item, **change.sets}.items() if k not in change.removes}


@given(
    st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)),
    st.none() | st.text(max_size=9),
    st.none() | st.just("busy"),
)
def test_settling_delivered_is_the_step_lifecycle_settle(
    headers: dict[str, str], allowed: str | None, error: str | None
) -> None:
    new = NewMessage(id="m", route="r", key="k", payload=b"1", due=DUE, headers=headers)
    first = first_record(new, DUE)
    first = replace(first, message=replace(first.message, last_error=error))
    leased = next_record(first, lifecycle.lease(first, TOKEN, NOW))
    assert leased is not None
    held = to_item(leased, SHAPE, RETENTION)
    settlement = Settlement(
        message=leased.message,
        token=TOKEN,
        state=State.DELIVERED,
        event="delivered",
        allowed=allowed,
    )
    session = cast("Session", SimpleNamespace(shape=SHAPE, retention=RETENTION))
    quickly = applied(held, Settling(session)._delivered(settlement, NOW))
    after = next_record(leased, lifecycle.settle(leased, settlement, NOW))
    assert after is not None
    assert quickly == next_item(held, after, SHAPE, RETENTION)
