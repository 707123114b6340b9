"""The SMS figures add up whatever comes twice, at once or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.contrib.sms.stats import Outcome, SmsStats
from penstock.sim.errors import Unreachable
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer


@pytest.fixture
async def stats(redis: RedisServer) -> AsyncIterator[SmsStats]:
    stats = SmsStats.at(redis.url, "q")
    yield stats
    await stats.close()


async def test_many_at_once_lose_no_update(stats: SmsStats) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(300):
            outcome = Outcome.SENT if number % 3 else Outcome.FAILED
            group.create_task(stats.count(outcome, f"m{number}", 1, 1_000))
    figures = await stats.read()
    assert (figures.sent, figures.failed, figures.attempts) == (200, 100, 300)
    assert figures.success_rate == pytest.approx(2 / 3)
    assert figures.average_seconds == pytest.approx(0.001)


async def test_an_attempt_that_is_told_again_counts_once(stats: SmsStats) -> None:
    assert await stats.count(Outcome.SENT, "m1", 1, 5)
    assert not await stats.count(Outcome.SENT, "m1", 1, 5)
    assert await stats.counted("m1", 1)
    assert not await stats.counted("m1", 2)
    assert (await stats.read()).sent == 1


async def test_a_message_ends_once_whichever_copy_of_it_ends_first(stats: SmsStats) -> None:
    await stats.count(Outcome.RETRIED, "m1", 1, 5)
    await stats.count(Outcome.SENT, "m1", 2, 9)
    await stats.count(Outcome.FAILED, "m1", 3, 20)
    figures = await stats.read()
    assert (figures.sent, figures.failed, figures.attempts) == (1, 0, 3)
    assert (figures.retried, figures.spent_us) == (1, 9)


async def test_a_message_that_went_out_twice_is_told_apart_from_a_call_that_was_repeated(
    stats: SmsStats,
) -> None:
    await stats.count(Outcome.SENT, "m1", 1, 5, "first")
    await stats.count(Outcome.SENT, "m1", 1, 5, "first")  # its answer was lost
    assert (await stats.read()).repeated == 0
    await stats.count(Outcome.SENT, "m1", 1, 5, "second")
    await stats.count(Outcome.SENT, "m1", 2, 5, "third")
    figures = await stats.read()
    assert (figures.sent, figures.repeated) == (1, 2)


async def test_messages_without_an_id_count_every_time(stats: SmsStats) -> None:
    await stats.count(Outcome.SENT, None, 1, 5)
    await stats.count(Outcome.SENT, None, 1, 5)
    assert (await stats.read()).sent == 2
    assert not await stats.counted(None, 1)


async def test_what_is_no_message_counts_as_no_attempt(stats: SmsStats) -> None:
    await stats.count(Outcome.REJECTED, "m1", 0, 0)
    figures = await stats.read()
    assert (figures.rejected, figures.attempts, figures.success_rate) == (1, 0, None)


async def test_a_reset_begins_at_nothing(stats: SmsStats) -> None:
    await stats.count(Outcome.SENT, "m1", 1, 5)
    await stats.reset()
    assert (await stats.read()).sent == 0


async def test_nobody_there_is_said_as_such() -> None:
    stats = SmsStats.at(f"redis://127.0.0.1:{free_port()}/0", "q")
    with pytest.raises(Unreachable, match="Redis does not answer"):
        await stats.count(Outcome.SENT, "m1", 1, 5)
    with pytest.raises(Unreachable):
        await stats.read()
    await stats.close()
