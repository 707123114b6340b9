"""A plain message on Redis: the short way keeps what the long one does, and steps aside in time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock.redis_kit.runner import Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.redis import open_store
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that took the long way."""
    names: list[str] = []
    run = Runner.try_run

    async def noting(self: Runner, script: Script, *args: object, **kinds: object) -> object:
        names.append(script.name)
        return await run(self, script, *args, **kinds)  # type: ignore[arg-type] # as they came

    monkeypatch.setattr(Runner, "try_run", noting)
    return names


def later(**ahead: float) -> datetime:
    return datetime.now(UTC) + timedelta(**ahead)


@pytest.mark.parametrize("payload", ["text", {"a": [1, None]}, 7, None, True, "ü\0", [1.5]])
async def test_both_ways_keep_the_same(
    redis: RedisServer, called: list[str], payload: object
) -> None:
    at = later(hours=2)
    async with penstock.open(redis.url) as engine:
        short = await engine.get((await engine.schedule(payload, at=at)).id)
        assert "put" not in called
        long = await engine.get((await engine.schedule(payload, at=at, priority=5)).id)
        (many,) = await engine.schedule_many([{"payload": payload, "at": at}])
        assert "put" not in called[: called.index("find")]
        assert isinstance(many, penstock.Receipt)
        told = [short, long, await engine.get(many.id)]
        assert len({(m.payload, m.content_type, m.due, m.route, m.priority) for m in told}) == 1
        assert all(m.key == m.id and m.version == 1 and m.attempt == 0 for m in told)
        assert len({m.id for m in told}) == 3


async def test_it_leaves_when_it_is_due_and_can_be_cancelled(redis: RedisServer) -> None:
    got: list[bytes] = []
    both = asyncio.Event()

    async def handle(message: penstock.Message) -> None:
        got.append(message.payload)
        if len(got) == 2:
            both.set()

    async with penstock.open(redis.url, routes={"default": handle}, worker=True) as engine:
        near = await engine.schedule("near", at=later(milliseconds=80))
        far = await engine.schedule("far", at=later(days=40))
        past = await engine.schedule("past", at=later(hours=-1))
        assert near.due <= far.due
        assert past.due >= near.due - 1_000
        assert (await engine.cancel(far.id)).state is penstock.State.CANCELLED
        await asyncio.wait_for(both.wait(), 300)
    assert sorted(got) == [b'"near"', b'"past"']


async def test_callers_at_once_share_a_call_and_one_alone_does_not(
    redis: RedisServer, called: list[str]
) -> None:
    async with penstock.open(redis.url) as engine:
        await engine.schedule("first", at=later(hours=1))
        receipts = await asyncio.gather(*(engine.schedule(n, at=later(hours=1)) for n in range(50)))
        assert len({receipt.id for receipt in receipts}) == 50
        assert called.count("put") == 1
        for n in range(20):
            await engine.schedule(n, at=later(hours=1))
        assert called.count("put") <= 2


async def test_what_is_wrong_is_said_as_ever(redis: RedisServer) -> None:
    async with penstock.open(redis.url) as engine:
        with pytest.raises(penstock.InvalidMessage, match="at"):
            await engine.schedule("x", at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
        with pytest.raises(penstock.InvalidMessage, match="nan"):
            await engine.schedule([float("nan")], at=later(hours=1))
        with pytest.raises(penstock.PenstockError, match="limit"):
            await engine.schedule("x" * 3_000_000, at=later(hours=1))
        with pytest.raises(TypeError, match="did you mean 'at'"):
            await engine.schedule("x", att=later(hours=1))  # type: ignore[call-arg] # a mistake


async def test_it_is_found_when_partitions_were_added_meanwhile(redis: RedisServer) -> None:
    async with penstock.open(redis.url) as engine:
        first = await engine.schedule("first", at=later(hours=1))
        grown = (
            await open_store(
                redis.url, total_partitions=32, retention=86_400_000, retention_count=1_000
            )
        ).messages
        ids = [(await engine.schedule(n, at=later(hours=1))).id for n in range(40)]
        found = await grown.find([first.id, *ids])
        assert all(message is not None for message in found)
        await grown.close()
