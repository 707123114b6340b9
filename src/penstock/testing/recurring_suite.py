"""One suite for every store of recurring rules: the executable form of `penstock.ports.recurring`.

    class TestMyRules(RecurringSuite):
        @pytest.fixture
        def make_harness(self):
            return MyHarness               # penstock.testing.store_harness.StoreHarness

Needs pytest and hypothesis. Every answer is compared with `penstock.stores.memory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import ClassVar, TypeAlias

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.recurrence import Rule, RuleRow, rule_from
from penstock.ports.recurring import DueRules, RecurringStore, Swap
from penstock.stores.memory.recurring import MemoryRecurring
from penstock.testing.store_harness import StoreHarness

MakeHarness: TypeAlias = Callable[[], StoreHarness]

NOW = 1_800_000_000_000
PAST, FUTURE = 1_000_000_000_000, 4_000_000_000_000
"""By the clock of every harness."""
HEARINGS = 300
"""Tries until two processes hear of each other."""
IDS = ("a", "b", "B", "c-1", "d.x")
RULE = rule_from({"every": "1h", "payload": {"n": 1, "text": "ü"}, "labels": {"channel": "push"}})


def row_of(
    rule_id: str, revision: int, wake: int | None = None, *, managed: bool = False
) -> RuleRow:
    """A row that differs from others by its revision."""
    return RuleRow(
        id=rule_id,
        rule=RULE,
        revision=revision,
        version=revision,
        changed=NOW,
        cursor=NOW,
        wake=wake,
        managed=managed,
    )


writes = st.tuples(
    st.sampled_from(IDS),
    st.sampled_from(["make", "change", "stale", "delete"]),
    st.none() | st.integers(NOW - 5, NOW + 5),
    st.booleans(),
)
walks = st.lists(st.lists(writes, min_size=1, max_size=4), min_size=1, max_size=12)
Write: TypeAlias = tuple[str, str, int | None, bool]


@asynccontextmanager
async def opened(harness: StoreHarness, processes: int = 1) -> AsyncIterator[list[RecurringStore]]:
    """The rules of one place, as opened by each of `processes`."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(harness.close)
        found = []
        for _ in range(processes):
            store = await harness.open()
            stack.push_async_callback(store.close)
            assert store.recurring is not None, "this suite is for a store that keeps rules"
            found.append(store.recurring)
        yield found


class RecurringSuite:
    """A store author's subclass provides `make_harness`: each call makes an empty place."""

    examples: ClassVar[int] = 50
    phases: ClassVar[Sequence[Phase]] = tuple(Phase)
    """Hypothesis phases: without `Phase.shrink` a failure on a slow server is reported at once."""

    def test_every_answer_is_that_of_the_reference(self, make_harness: MakeHarness) -> None:
        async def walk(batches: list[list[Write]]) -> None:
            async with opened(make_harness()) as (store,):
                await _walk_beside(store, MemoryRecurring(), batches)

        @settings(max_examples=self.examples, phases=self.phases, deadline=None)
        @given(walks)
        def check(batches: list[list[Write]]) -> None:
            asyncio.run(walk(batches))

        check()

    async def test_of_two_that_write_the_same_row_one_succeeds(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            assert await store.swap([Swap("a", 0, row_of("a", 1))]) == [True]
            swaps = [Swap("a", 1, row_of("a", 2, NOW + number)) for number in range(8)]
            done = await asyncio.gather(*(store.swap([swap]) for swap in swaps))
            assert sum(first for (first,) in done) == 1
            (stored,) = await store.rules(["a"])
            assert stored == swaps[done.index([True])].row

    async def test_due_rows_come_in_pages_the_earliest_first(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            rows = [row_of(f"r{number:03}", 1, NOW - number) for number in range(120)]
            assert all(await store.swap([Swap(row.id, 0, row) for row in rows]))
            seen: list[RuleRow] = []
            while (due := await store.due(NOW, 50)).rows:
                seen += due.rows
                moved = [replace(row, revision=2, wake=NOW + 1_000) for row in due.rows]
                assert all(await store.swap([Swap(row.id, 1, row) for row in moved]))
            assert seen == list(reversed(rows))
            assert due.next_wake == NOW + 1_000

    async def test_a_page_goes_on_behind_the_last_id(self, make_harness: MakeHarness) -> None:
        async with opened(make_harness()) as (store,):
            ids = sorted(f"rule-{number}" for number in range(35))
            await store.swap([Swap(name, 0, row_of(name, 1)) for name in ids])
            found: list[str] = []
            while page := await store.page(found[-1] if found else None, 10):
                found += [row.id for row in page]
            assert found == ids

    async def test_a_write_of_its_own_process_is_told_with_its_moment(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            wakes: list[int] = []
            store.listen(wakes.append)
            await store.swap([Swap("a", 0, row_of("a", 1, NOW + 7))])
            await store.swap([Swap("b", 0, row_of("b", 1))])
            assert set(wakes) == {NOW + 7}, "once or, by a server's notification, twice"

    async def test_a_row_that_moved_on_and_back_is_given_once(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            for revision, wake in enumerate((NOW, NOW + 9, NOW, None, NOW, NOW), 1):
                row = row_of("a", revision, wake)
                assert await store.swap([Swap("a", revision - 1, row)]) == [True]
            assert (await store.due(NOW, 10)).rows == (row,)
            assert (await store.due(NOW, 10)).rows == (row,), "looking takes nothing away"
            assert (await store.due(NOW - 1, 10)).next_wake == NOW

    async def test_a_whole_rule_comes_back_as_it_was(self, make_harness: MakeHarness) -> None:
        async with opened(make_harness()) as (store,):
            row = replace(row_of("a", 1, NOW), rule=_full_rule(), error="no route", source="x")
            await store.swap([Swap("a", 0, row)])
            assert await store.rules(["a", "none"]) == [row, None]


class DurableRecurringSuite(RecurringSuite):
    """Also tests that rules survive the process: for every store except in memory."""

    async def test_what_was_answered_survives_a_crash(self, make_harness: MakeHarness) -> None:
        harness = make_harness()
        store = await harness.open()
        assert store.recurring is not None
        await store.recurring.swap([Swap("a", 0, row_of("a", 1, NOW, managed=True))])
        await harness.crash(store)
        async with opened(harness) as (again,):
            assert await again.rules(["a"]) == [row_of("a", 1, NOW, managed=True)]
            assert await again.managed() == ["a"]
            assert (await again.due(NOW, 10)).rows == (row_of("a", 1, NOW, managed=True),)


class ServerRecurringSuite(DurableRecurringSuite):
    """And that processes hear of each other's rules: for every store that is a server."""

    async def test_a_nearer_row_of_another_process_is_told_and_no_later_one(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness(), 2) as (one, two):
            wakes: asyncio.Queue[int] = asyncio.Queue()
            two.listen(wakes.put_nowait)
            heard = None
            for number in range(1, HEARINGS):  # until the other one listens
                await one.swap([Swap(f"r{number}", 0, row_of(f"r{number}", 1, PAST - number))])
                with suppress(TimeoutError):
                    heard = await asyncio.wait_for(wakes.get(), 0.1)
                    break
            assert heard is not None
            assert PAST - number <= heard < PAST
            await one.swap([Swap("far", 0, row_of("far", 1, FUTURE))])
            await one.swap([Swap("near", 0, row_of("near", 1, PAST - 86_400_000))])
            while (heard := await asyncio.wait_for(wakes.get(), 300)) > PAST - 86_400_000:
                assert heard < PAST, "a later moment causes no wake-up"


def _full_rule() -> Rule:
    return rule_from(
        {
            "cron": "0 9 * * mon-fri",
            "zone": "Europe/Berlin",
            "route": "reports",
            "key": "k",
            "payload": [1, {"a": None}],
            "headers": {"x": "y"},
            "labels": {"class": "promotional", "tags": ["t"]},
            "priority": 9,
            "expires_after": "1h",
            "start": "2026-01-01T00:00:00Z",
            "end": "2036-01-01T00:00:00Z",
            "limit": 100,
            "jitter": "30s",
            "misfire": "all",
            "catch_up": "2d",
            "overlap": "replace",
            "paused": True,
        }
    )


async def _walk_beside(
    store: RecurringStore, reference: MemoryRecurring, batches: list[list[Write]]
) -> None:
    for batch in batches:
        known = await reference.rules(IDS)
        revisions = {
            name: 0 if row is None else row.revision for name, row in zip(IDS, known, strict=True)
        }
        swaps = [_swap_of(write, revisions[write[0]]) for write in batch]
        assert await store.swap(swaps) == await reference.swap(swaps)
        assert await store.rules(IDS) == await reference.rules(IDS)
        assert await store.managed() == await reference.managed()
        for limit in (2, 10):
            assert await store.page(None, limit) == await reference.page(None, limit)
            found, expected = await store.due(NOW, limit), await reference.due(NOW, limit)
            assert _told(found, limit) == _told(expected, limit)


def _swap_of(write: Write, revision: int) -> Swap:
    name, what, wake, managed = write
    match what:
        case "make":
            return Swap(name, 0, row_of(name, 1, wake, managed=managed))
        case "change":
            return Swap(name, revision, row_of(name, revision + 1, wake, managed=managed))
        case "stale":
            return Swap(name, revision + 1, row_of(name, revision + 2, wake, managed=managed))
        case _:
            return Swap(name, revision or 1, None)


def _told(due: DueRules, limit: int) -> tuple[object, ...]:
    """The comparable part of an answer: rows of the same moment come in any order, so that only the
    moments of a full page count."""
    wakes = [row.wake for row in due.rows if row.wake is not None]
    assert wakes == sorted(wakes)
    if len(due.rows) == limit:
        return (wakes,)
    return (wakes, sorted(row.id for row in due.rows), due.next_wake)
