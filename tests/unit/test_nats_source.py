"""How a NATS source takes the client's word that nothing is there."""

from __future__ import annotations

import pytest
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext

from penstock.sources.nats import _fetch


class Nothing(JetStreamContext.PullSubscription):
    """A subscription on which nothing comes, told in one of the client's ways."""

    def __init__(self, told: Exception) -> None:
        self._told = told

    async def fetch(self, *_: object, **__: object) -> list[object]:  # type: ignore[override]
        raise self._told


@pytest.mark.parametrize("told", [NatsTimeout(), TimeoutError()], ids=["its own", "plain"])
async def test_nothing_within_the_time_is_an_empty_batch(told: Exception) -> None:
    assert await _fetch(Nothing(told), 10) == []


async def test_a_fault_stays_one() -> None:
    with pytest.raises(ConnectionError):
        await _fetch(Nothing(ConnectionError()), 10)
