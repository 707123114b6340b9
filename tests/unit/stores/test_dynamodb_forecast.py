"""The forecast of the tiered store: exact while it is cheap, from a sample beyond."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.model.forecast import HOUR_MS, HOURS, MINUTE_MS
from penstock.stores.dynamodb import forecast as module
from penstock.stores.dynamodb.forecast import forecast
from penstock.stores.dynamodb.items import OPEN, Item, Shape, list_key, order
from penstock.stores.dynamodb.lookup import ROUTES
from penstock.stores.dynamodb.table import Range
from penstock.testing.clock import ManualClock

NOW = 1_800_000_000_000
SHARDS = 8


class Index:
    """As much of a table as a forecast reads: the dues of each shard, in pages of 100."""

    def __init__(self, shards: dict[int, list[int]]) -> None:
        self._held = {
            list_key(OPEN, "r", shard): sorted(order(due, str(i)) for i, due in enumerate(dues))
            for shard, dues in shards.items()
        }
        self.read = 0
        """Entries that were looked at one by one."""

    async def get(self, pks: list[str]) -> dict[str, Item]:
        return {ROUTES: {"routes": {"SS": ["r"]}}} if pks == [ROUTES] else {}

    async def pages(self, asked: Range, _: int | None = None) -> AsyncIterator[list[Item]]:
        found = list(self._in(asked))
        for first in range(0, len(found), 100):
            page = found[first : first + 100]
            self.read += len(page)
            yield [{"o": {"S": one}} for one in page]

    async def count(self, asked: Range, _: int) -> int:
        return len(list(self._in(asked)))

    def _in(self, asked: Range) -> Iterator[str]:
        for one in self._held.get(asked.partition, []):
            after = asked.after is None or one > asked.after
            if after and (asked.before is None or one < asked.before):
                yield one


class Notes:
    """What processes tell each other through Redis."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    async def note(self, name: str, value: bytes, _: int) -> None:
        self.held[name] = value

    async def noted(self, name: str) -> bytes | None:
        return self.held.get(name)


def session(index: Index) -> Any:
    async def look(_: object) -> dict[str, object]:
        return {}

    return SimpleNamespace(
        table=index,
        near=Notes(),
        shape=Shape(60_000, SHARDS),
        look=look,
        clock=ManualClock(NOW),
        counts={},
    )


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE", 1_000)
    monkeypatch.setattr(module, "SHARD_MOST", 500)


async def test_few_messages_are_all_counted() -> None:
    dues = [NOW - 5, NOW + 90_000, NOW + 5 * HOUR_MS, NOW + (HOURS + 28) * HOUR_MS]
    found = await forecast(session(Index({0: dues, 7: dues})), NOW, 0)
    assert found.exact
    assert found.minutes[0] == {"r": 2}
    assert sum(minute["r"] for minute in found.minutes) == 4
    assert sum(hour["r"] for hour in found.hours) == 6
    assert found.later == {"r": 2}


async def test_of_many_a_part_is_read_and_stands_for_all() -> None:
    dues = [NOW + second * 1_000 for second in range(400)] + [NOW + (HOURS + 28) * HOUR_MS] * 50
    index = Index(dict.fromkeys(range(SHARDS), dues))
    found = await forecast(session(index), NOW, 0)
    assert not found.exact
    assert index.read == 4 * 400  # the fewest rounds that make up the sample
    assert sum(minute["r"] for minute in found.minutes) == SHARDS * 400
    assert found.later == {"r": SHARDS * 50}


async def test_what_a_large_shard_holds_behind_the_nearest_is_spread_to_the_horizon() -> None:
    near = [NOW + n for n in range(500)]
    behind = [NOW + n * HOUR_MS for n in range(1, 71) for _ in range(10)]
    index = Index(dict.fromkeys(range(SHARDS), near + behind))
    found = await forecast(session(index), NOW, 0)
    assert not found.exact
    assert found.minutes[0]["r"] >= SHARDS * 500
    assert sum(hour["r"] for hour in found.hours) == SHARDS * 1_200
    assert sum(1 for hour in found.hours[1:] if hour["r"]) == HOURS - 1
    assert not found.later


async def test_a_forecast_serves_all_processes_for_a_while() -> None:
    index = Index({0: [NOW, NOW + 3 * MINUTE_MS, NOW + (HOURS + 28) * HOUR_MS]})
    asked = session(index)
    first = await forecast(asked, NOW, 10_000)
    read = index.read
    assert await forecast(asked, NOW + 500, 10_000) == first
    assert index.read == read
