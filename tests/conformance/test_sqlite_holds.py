"""Places held in SQLite: one row a batch beside the counters, the same answers as the reference."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.decision import Conclusion, End, Question
from penstock.model.policy import Cap, Policy, Scope
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore
from penstock.stores.memory.policies import MemoryPolicies
from penstock.stores.sql.policies import SqlPolicies
from penstock.stores.sqlite import SqliteStore, open_store
from penstock.stores.sqlite.session import Session
from penstock.testing import policy_worlds as worlds
from penstock.testing.policy_walk import Beside, Step, traffic

START, HOLD = worlds.START, worlds.HOLD
ONE = Cap(scope=(Scope.KEY,), limit=1, window="24h")
ROUTE = Cap(scope=(Scope.ROUTE,), limit=1_000, window="24h")


async def opened(url: str = "sqlite:///:memory:") -> SqliteStore:
    store = (
        await open_store(url, total_partitions=1, retention=60_000, retention_count=1_000)
    ).messages
    assert isinstance(store, SqliteStore)
    return store


def ask(message_id: str, key: str = "ann") -> Question:
    return Question(id=message_id, key=key, due=START)


async def verdicts(policies: SqlPolicies, now: int, *questions: Question) -> list[Verdict]:
    return [decision.verdict for decision in await policies.decide(questions, now, HOLD)]


def rows(store: SqliteStore) -> tuple[int, int]:
    """Of batches that hold places, and of what has ended of them."""
    counted = "SELECT (SELECT count(*) FROM holds), (SELECT count(*) FROM ended)"
    holds, ended = store._session.connection.execute(counted).fetchone()
    return holds, ended


class Alternating:
    """Two processes on one file that take turns; now and then one dies and another comes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stores: list[SqliteStore] = []
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def call(*args: object) -> object:
            answer: object = await getattr((await self.next()).policies, name)(*args)
            return answer

        return call

    async def next(self) -> SqliteStore:
        self.calls += 1
        if len(self.stores) == 2 and self.calls % 7 == 0:
            await self.stores.pop(0).close()  # all that it knew is gone with it
        if len(self.stores) < 2:
            self.stores.append(await opened(self.url))
        return self.stores[self.calls % len(self.stores)]


class Unlucky:
    """Every transaction that writes is first undone by somebody else's failure, then repeated."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method: Callable[..., Awaitable[object]] = getattr(self.store.policies, name)

        async def beside_a_failure(*args: object) -> object:
            answer = asyncio.ensure_future(method(*args))
            await asyncio.sleep(0)  # it is in the queue
            with pytest.raises(ZeroDivisionError):
                await self.store._group.submit(_fail)
            return await answer

        return beside_a_failure if name in {"decide", "conclude"} else method


def _fail(session: Session) -> None:
    del session
    raise ZeroDivisionError


@settings(max_examples=25)
@given(worlds.books, st.lists(traffic, min_size=1, max_size=15))
async def test_processes_that_take_turns_on_one_file_answer_like_the_reference(
    policies: dict[str, Policy], steps: list[Step]
) -> None:
    with TemporaryDirectory() as folder:
        both = Alternating(f"sqlite:///{folder}/p.db?synchronous=normal")
        try:
            await Beside(cast("PolicyStore", both)).walk(policies, steps)
        finally:
            for store in both.stores:
                await store.close()


@settings(max_examples=25)
@given(worlds.books, st.lists(traffic, min_size=1, max_size=15))
async def test_what_was_rolled_back_is_forgotten(
    policies: dict[str, Policy], steps: list[Step]
) -> None:
    store = await opened()
    try:
        await Beside(cast("PolicyStore", Unlucky(store))).walk(policies, steps)
    finally:
        await store.close()


async def test_a_batch_is_one_row_until_its_last_message_has_ended() -> None:
    store = await opened()
    policies = store.policies
    await policies.put_policy("one", ONE)
    await policies.put_policy("route", ROUTE)
    batch = [ask(f"m{n}", f"k{n}") for n in range(20)]
    assert await verdicts(policies, START, *batch) == [Verdict.ALLOW] * 20
    assert rows(store) == (1, 0)
    await policies.conclude([Conclusion(q, End.COMMIT) for q in batch[:5]], START)
    await policies.conclude([Conclusion(batch[5], End.RELEASE)], START)
    assert rows(store) == (1, 2)
    await policies.conclude([Conclusion(q, End.COMMIT) for q in batch[6:]], START)
    assert rows(store) == (0, 0)
    await store.close()


async def test_a_place_survives_the_process_and_is_used_by_its_message_alone(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/p.db"
    store = await opened(url)
    await store.policies.put_policy("one", ONE)
    mine, other = ask("m1"), ask("m2")
    assert await verdicts(store.policies, START, mine, ask("b", "bob")) == [Verdict.ALLOW] * 2
    await store.policies.conclude([Conclusion(ask("b", "bob"), End.RELEASE)], START)
    await store.close()
    store = await opened(url)
    assert await verdicts(store.policies, START + 1, other) == [Verdict.DEFER]
    assert await verdicts(store.policies, START + 1, mine) == [Verdict.ALLOW]
    assert await verdicts(store.policies, START + 1, ask("c", "bob")) == [Verdict.ALLOW]
    await store.policies.conclude([Conclusion(mine, End.COMMIT)], START + 2)
    await store.close()
    store = await opened(url)
    assert await verdicts(store.policies, START + 3 * HOLD, other) == [Verdict.DEFER]
    await store.close()


async def test_a_place_that_nobody_speaks_of_any_more_goes_with_its_row(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/p.db"
    store = await opened(url)
    await store.policies.put_policy("one", ONE)
    assert await verdicts(store.policies, START, ask("m1"), ask("b", "bob")) == [Verdict.ALLOW] * 2
    await store.policies.conclude([Conclusion(ask("b", "bob"), End.COMMIT)], START)
    await store.close()
    store = await opened(url)
    await store.purge(START + HOLD - 2, 500)
    assert rows(store) == (1, 1)
    assert await verdicts(store.policies, START + HOLD - 2, ask("m2")) == [Verdict.DEFER]
    await store.purge(START + HOLD, 500)
    assert rows(store) == (0, 0)
    assert await verdicts(store.policies, START + HOLD, ask("m2")) == [Verdict.ALLOW]
    await store.close()


async def test_accounts_with_places_stay_known_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.stores.sql.ledger.KEPT", 4)
    store = await opened()
    policies = store.policies
    await policies.put_policy("one", ONE)
    await policies.put_policy("route", ROUTE)
    early = [ask(f"e{n}", f"early{n}") for n in range(10)]
    assert await verdicts(policies, START, *early) == [Verdict.ALLOW] * 10
    late = [ask(f"l{n}", f"late{n}") for n in range(10)]
    assert await verdicts(policies, START, *late) == [Verdict.ALLOW] * 10
    await policies.conclude([Conclusion(question, End.COMMIT) for question in late], START)
    for n in range(10):
        again = [ask(f"x{n}", f"early{n}"), ask(f"y{n}", f"late{n}")]
        assert await verdicts(policies, START, *again) == [Verdict.DEFER] * 2
    await store.close()


async def test_a_process_whose_clock_is_behind_sees_the_sends_that_the_reference_sees(
    tmp_path: Path,
) -> None:
    """Holding a place writes no counter, so it drops no send that others may still count."""
    two = {"two": cast("Policy", Cap(scope=(Scope.KEY,), limit=2, window="10s"))}
    ahead, behind = [await opened(f"sqlite:///{tmp_path}/p.db") for _ in range(2)]
    reference = MemoryPolicies()
    sent = [Conclusion(ask(name), End.COMMIT) for name in ("a", "b")]
    for policies in (cast("PolicyStore", ahead.policies), cast("PolicyStore", reference)):
        for name, policy in two.items():
            await policies.put_policy(name, policy)
        await policies.decide([ask("a"), ask("b")], START, HOLD)
        await policies.conclude(sent, START)
        (late,) = await policies.decide([ask("c")], START + 10_100, HOLD)
        assert late.verdict is Verdict.ALLOW
    asked = [ask("d")], START + 9_900, HOLD
    assert await behind.policies.decide(*asked) == await reference.decide(*asked)
    await ahead.close()
    await behind.close()
