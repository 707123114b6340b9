"""SQLite decides as the reference does."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.decision import Conclusion, End, Question
from penstock.model.policy import Cap, Scope
from penstock.stores.sql.ledger import DAY_MS, Ledger
from penstock.stores.sqlite import SqliteStore, open_store
from penstock.testing import policy_worlds as worlds
from penstock.testing.policy_suite import MakeHarness, SharedPolicySuite
from penstock.testing.policy_walk import (
    Beside,
    Drop,
    Put,
    Step,
    sends,
)
from tests.conformance.sqlite_harness import SqliteHarness

DAILY = Cap(scope=(Scope.KEY,), limit=2, window="24h")
WEEKLY = Cap(scope=(Scope.KEY,), limit=20, window="7d")


class BesideSqlite(Beside):
    """A cap whose window is another counts anew: with a longer one, counters that stand for
    several caps know more of the past than the reference."""

    async def step(self, step: Step) -> None:
        if isinstance(step, Put):
            before = self.reference._rules.book.policies.get(step.id)
            same = getattr(before, "window", None) == getattr(step.policy, "window", None)
            if before is not None and not same:
                await super().step(Drop(step.id))
        await super().step(step)


async def opened(url: str = "sqlite:///:memory:") -> SqliteStore:
    store = (
        await open_store(url, total_partitions=1, retention=60_000, retention_count=1_000)
    ).messages
    assert isinstance(store, SqliteStore)
    return store


class TestSqlitePolicies(SharedPolicySuite):
    examples = 60
    beside = BesideSqlite

    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        return lambda: SqliteHarness("?synchronous=normal")


async def test_counts_and_policies_outlive_the_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/p.db"
    store = await opened(url)
    await store.policies.put_policy("daily", DAILY)
    assert await sends(store.policies, 1, worlds.START) == 1
    await store.close()
    store = await opened(url)
    assert (await store.policies.book()).policies == {"daily": DAILY}
    assert await sends(store.policies, 5, worlds.START + 1) == 1
    await store.close()


async def test_what_one_process_counted_counts_in_every_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/p.db"
    here, there = await opened(url), await opened(url)
    await here.policies.put_policy("daily", DAILY)
    turns = (here, 1), (there, 1), (here, 0), (there, 0)
    for moment, (store, sent) in enumerate(turns, start=worlds.START):
        assert await sends(store.policies, 1, moment) == sent
    await here.close()
    await there.close()


async def test_a_cap_whose_window_is_made_longer_counts_what_another_cap_remembers() -> None:
    store = await opened()
    policies = store.policies
    await policies.put_policy("brief", Cap(scope=(Scope.KEY,), limit=2, window="5m"))
    await policies.put_policy("weekly", WEEKLY)
    for minute in (0, 20, 40):
        assert await sends(policies, 1, worlds.START + minute * worlds.MINUTE) == 1
    await policies.put_policy("brief", Cap(scope=(Scope.KEY,), limit=4, window="1h"))
    now = worlds.START + 50 * worlds.MINUTE
    assert [figure.used for figure in await policies.counters("ann", now)] == [3, 3]
    assert await sends(policies, 3, now) == 1
    await store.close()


async def test_a_batch_that_fails_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last thing that is written fails, after everything was decided or counted."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    store = await opened()
    policies = store.policies
    await policies.put_policy("daily", DAILY)
    question = Question(id="m", key="ann", due=worlds.START)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_note_change", fail)
        with pytest.raises(ZeroDivisionError):
            await policies.decide([question], worlds.START, worlds.HOLD)
    (figure,) = await policies.counters("ann", worlds.START)
    assert figure.used == 0
    await policies.decide([question], worlds.START, worlds.HOLD)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_note_change", fail)
        with pytest.raises(ZeroDivisionError):
            await policies.conclude([Conclusion(question, End.RELEASE)], worlds.START)
    (figure,) = await policies.counters("ann", worlds.START)
    assert figure.used == 1
    assert await sends(policies, 3, worlds.START) == 1
    await store.close()


async def test_counters_that_cannot_matter_any_more_are_forgotten() -> None:
    store = await opened()
    await store.policies.put_policy("daily", DAILY)
    await sends(store.policies, 1, worlds.START)
    rows = store._session.connection.execute("SELECT count(*) FROM accounts").fetchone
    await store.purge(worlds.START + DAY_MS, 500)
    assert rows() == (1,)
    await store.purge(worlds.START + 4 * DAY_MS, 500)
    assert store._session.connection.execute("SELECT count(*) FROM accounts").fetchone() == (0,)
    await store.close()
