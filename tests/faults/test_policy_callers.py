"""Processes that decide by the same caps, and one that dies between ALLOW and the end of it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.decision import Conclusion, End, Question
from penstock.model.policy import Cap, Scope
from penstock.model.verdict import Verdict
from systems.servers.redis import RedisServer
from tests.faults.policy_caller import HOLD, KEYS, opened

pytestmark = pytest.mark.slow

LIMIT = 100


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["redis", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store in which nothing is yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/p.db?synchronous=normal"  # no power is cut here
    server: RedisServer = request.getfixturevalue("redis")
    server.flush()
    return server.url


async def caller(url: str, name: str, what: str, more: str) -> Process:
    command = (sys.executable, "-m", "tests.faults.policy_caller", url, name, what, more)
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)


async def lines_until(process: Process, last: str) -> list[str]:
    """The lines it writes before that one."""
    assert process.stdout is not None
    lines: list[str] = []
    while (line := await process.stdout.readline()) != f"{last}\n".encode():
        assert line, f"it ended without saying {last}: {lines}"
        lines.append(line.decode().strip())
    return lines


def tell_all(callers: list[Process]) -> None:
    for process in callers:
        assert process.stdin is not None
        process.stdin.write(b"go\n")


async def test_processes_at_once_never_exceed_a_cap(url: str) -> None:
    store = await opened(url)
    await store.policies.put_policy("each", Cap(scope=(Scope.KEY,), limit=LIMIT, window="24h"))
    everybody = Cap(scope=(Scope.ROUTE,), limit=LIMIT * KEYS - 10, window="24h")
    await store.policies.put_policy("all", everybody)
    callers = [await caller(url, f"c{n}", "turns", "30") for n in range(3)]
    await asyncio.gather(*(lines_until(process, "ready") for process in callers))
    tell_all(callers)
    keys = await asyncio.gather(*(lines_until(process, "begun") for process in callers))
    assert all(keys)  # each has sent some before any goes on to the limit
    rest = await asyncio.gather(*(process.communicate(b"go\n") for process in callers))
    assert [process.returncode for process in callers] == [0, 0, 0]
    keys += [out.decode().split() for out, _ in rest]
    sent = Counter(key for some in keys for key in some)
    assert max(sent.values()) <= LIMIT
    assert LIMIT * KEYS - 20 <= sum(sent.values()) <= LIMIT * KEYS - 10
    for key, number in sent.items():
        (figure,) = await store.policies.counters(key, store.clock.now())
        assert (figure.used, figure.limit) == (number, LIMIT)
    await store.close()


@pytest.mark.parametrize("scope", [Scope.KEY, Scope.ROUTE])
async def test_a_process_killed_after_allow_keeps_the_count_right(url: str, scope: Scope) -> None:
    store = await opened(url)
    policies = store.policies
    await policies.put_policy("one", Cap(scope=(scope,), limit=1, window="24h"))
    process = await caller(url, "m1", "hold", "ann")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ALLOW\n"
    process.kill()
    await process.communicate()

    now = store.clock.now()
    mine, other = (Question(id=name, key="ann", due=now) for name in ("m1", "m2"))
    refused, again = await policies.decide([other, mine], now, HOLD)
    assert (refused.verdict, again.verdict) == (Verdict.DEFER, Verdict.ALLOW)
    for _ in range(2):  # its lease was lost, and whoever has it now may say it twice
        await policies.conclude([Conclusion(mine, End.COMMIT)], now)
    (told,) = await policies.explain([other], now)
    assert told.rules[0].detail.startswith("1 of 1")
    later = now + 2 * HOLD
    (still,) = await policies.decide([other], later, HOLD)
    assert still.verdict is Verdict.DEFER
    await store.close()


async def test_a_place_that_nobody_speaks_of_any_more_is_free_after_a_while(url: str) -> None:
    store = await opened(url)
    policies = store.policies
    await policies.put_policy("one", Cap(scope=(Scope.KEY,), limit=1, window="24h"))
    now = store.clock.now()
    lost, other = (Question(id=name, key="ann", due=now) for name in ("m1", "m2"))
    (allowed,) = await policies.decide([lost], now, HOLD)
    (refused,) = await policies.decide([other], now + HOLD - 1, HOLD)
    (free,) = await policies.decide([other], now + HOLD, HOLD)
    assert [d.verdict for d in (allowed, refused, free)] == [
        Verdict.ALLOW,
        Verdict.DEFER,
        Verdict.ALLOW,
    ]
    await store.close()


@pytest.mark.parametrize("scope", [Scope.KEY, Scope.ROUTE])
async def test_a_place_that_is_over_is_not_kept(url: str, scope: Scope) -> None:
    """Whoever comes back that late has lost it, maybe to somebody else."""
    store = await opened(url)
    policies = store.policies
    await policies.put_policy("one", Cap(scope=(scope,), limit=1, window="24h"))
    now = store.clock.now()
    lost, other = (Question(id=name, key="ann", due=now) for name in ("m1", "m2"))
    (allowed,) = await policies.decide([lost], now, HOLD)
    later = now + HOLD
    await policies.conclude([Conclusion(lost, End.KEEP, later + HOLD)], later)
    free, refused = await policies.decide([other, lost], later, HOLD)
    assert [d.verdict for d in (allowed, free, refused)] == [
        Verdict.ALLOW,
        Verdict.ALLOW,
        Verdict.DEFER,
    ]
    await store.close()
