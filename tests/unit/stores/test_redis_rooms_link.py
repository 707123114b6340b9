"""How rooms reach Redis when it fails: three tries more, a second apart, then the breaker."""

from __future__ import annotations

from typing import cast

import pytest
from redis import exceptions as vendor

from penstock.model.errors import StoreCorrupt, StoreUnavailable
from penstock.redis_kit.connect import Argument, Reply, Server
from penstock.stores.redis.rooms.keys import PATIENCE, RoomRunner


class Failing:
    """A server that fails as often as it is told."""

    cluster = False

    def __init__(self) -> None:
        self.failures = 0
        self.kind: type[Exception] = vendor.ConnectionError
        self.calls = 0

    async def call(self, *command: Argument) -> Reply:
        del command
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise self.kind("gone")
        return b"PONG"


@pytest.fixture
def failing() -> Failing:
    return Failing()


def linked(failing: Failing, at: list[float]) -> RoomRunner:
    at_once = PATIENCE._replace(waits=(0.0, 0.0, 0.0))
    server = cast("Server", failing)
    return RoomRunner(server, "redis", patience=at_once, monotonic=lambda: at[0])


async def test_it_tries_three_times_more_a_second_apart(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("penstock.redis_kit.runner.asyncio.sleep", sleep)
    failing.failures = 4
    with pytest.raises(StoreUnavailable):
        await RoomRunner(cast("Server", failing), "redis").call("PING")
    assert slept == [1.0, 1.0, 1.0]


async def test_a_call_that_gets_through_in_time_is_answered(failing: Failing) -> None:
    link = linked(failing, [0.0])
    failing.failures = 3
    assert await link.call("PING") == b"PONG"
    assert (failing.calls, link.errors, link.is_open) == (4, 3, False)


async def test_after_the_last_try_the_breaker_opens_and_one_call_closes_it(
    failing: Failing,
) -> None:
    at = [0.0]
    link = linked(failing, at)
    failing.failures = 4
    with pytest.raises(StoreUnavailable):
        await link.call("PING")
    assert link.is_open
    with pytest.raises(StoreUnavailable) as refused:
        await link.call("PING")
    assert failing.calls == 4, "nothing is sent while it is open"
    assert 0 < refused.value.retry_after <= PATIENCE.longest_open
    at[0] = PATIENCE.longest_open
    assert await link.call("PING") == b"PONG"
    assert not link.is_open


async def test_what_cannot_be_mended_by_trying_is_not_tried_again(failing: Failing) -> None:
    link = linked(failing, [0.0])
    failing.failures, failing.kind = 1, vendor.ResponseError
    with pytest.raises(StoreCorrupt):
        await link.call("PING")
    assert (failing.calls, link.is_open) == (1, False)
