"""What a process takes the server's time to be, from answers that are under way for some time."""

from __future__ import annotations

import random

import pytest

from penstock.time import server_clock as clocks
from penstock.time.server_clock import SAMPLES, SLACK_MS, ServerClock


class Server:
    """A server whose clock is `ahead` of our monotonic one; the way there and back takes time."""

    def __init__(self, there: float = 0.1, back: float = 0.1) -> None:
        self.millis = 5_000.0
        self.ahead = 1_900_000_000_000.0
        self.there = there
        self.back = back

    def monotonic_ns(self) -> int:
        return round(self.millis * 1_000_000)

    @property
    def now(self) -> float:
        return self.millis + self.ahead

    async def time(self) -> float:
        self.millis += self.there
        told = self.now
        self.millis += self.back
        return told


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(clocks, "time", server)
    return server


async def test_we_are_behind_the_server_by_the_way_back_and_the_slack(server: Server) -> None:
    clock = ServerClock(server.time)
    await clock.measure()
    assert server.now - clock.exact() == pytest.approx(0.1 + SLACK_MS, abs=0.01)


async def test_a_moment_in_which_everything_is_slow_makes_nobody_late(server: Server) -> None:
    clock = ServerClock(server.time)
    await clock.measure()
    server.back = 20.0
    await clock.measure()
    assert server.now - clock.exact() == pytest.approx(0.1 + 2 * SLACK_MS, abs=0.01)


async def test_the_answer_that_says_most_counts_and_not_the_quickest(server: Server) -> None:
    ways = iter([(0.0, 1.0), (9.0, 0.2), (2.0, 2.0), (5.0, 5.0), (1.0, 3.0)])

    async def time() -> float:
        server.there, server.back = next(ways)
        return await server.time()

    clock = ServerClock(time)
    await clock.measure()
    assert server.now - clock.exact() == pytest.approx(0.2 + SLACK_MS, abs=0.01)


async def test_a_server_whose_clock_is_set_back_is_followed_at_once(server: Server) -> None:
    clock = ServerClock(server.time)
    await clock.measure()
    server.ahead -= 3_600_000.0
    await clock.measure()
    assert 0 < server.now - clock.exact() < 1


async def test_we_are_never_ahead_of_the_server(server: Server) -> None:
    chance = random.Random(1)

    async def time() -> float:
        server.there, server.back = chance.expovariate(1), chance.expovariate(1)
        server.ahead += chance.uniform(-1, 1) * SLACK_MS / SAMPLES  # clocks come apart
        return await server.time()

    clock = ServerClock(time)
    for _ in range(200):
        await clock.measure()
        assert clock.exact() <= server.now
