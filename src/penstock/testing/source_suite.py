"""The promises of every source, as tests: a new source must pass them.

class TestKafkaSource(SourceSuite):
    @pytest.fixture
    async def end(self) -> AsyncIterator[KafkaSourceEnd]: ...
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.model.errors import SourceUnavailable
from penstock.ports.source import Record, Source
from penstock.testing.poison import INNOCENTS

TRIES = 100
"""Reads within which a record must have arrived."""


class SourceEnd(ABC):
    """The broker behind the source under test."""

    secrets: tuple[str, ...] = ()
    """Secrets of its address that must never be shown."""

    @abstractmethod
    async def open(self) -> Source:
        """Open a new reader of the same group; the suite closes it."""

    @abstractmethod
    async def publish(self, values: Sequence[bytes]) -> None:
        """Put records into the broker, in order, each with a header `x-trace: a b`."""

    @abstractmethod
    async def publish_hostile(self, value: bytes) -> int:
        """Publish this value with hostile headers and keys; returns the number of records.

        The headers are `penstock.testing.poison.HEADERS`, as far as the broker accepts them, and
        all other kinds of headers, keys and types that it knows.
        """

    @abstractmethod
    async def leave(self) -> None:
        """Refuse connections, and end those there are."""

    @abstractmethod
    async def recover(self) -> None:
        """Work again, at the same address."""


def values(number: int, word: str = "r") -> list[bytes]:
    return [b"%s-%d" % (word.encode(), n) for n in range(number)]


async def collect(source: Source, number: int, *, done: bool = True) -> list[Record]:
    """Read `number` records as the flow does: each is done before the next read."""
    found: list[Record] = []
    for _ in range(TRIES):
        try:
            got = await source.read(number - len(found))
            found += got
            if done and got:
                await source.done(got)
        except SourceUnavailable:
            await asyncio.sleep(0.1)
        if len(found) >= number:
            return found
    raise AssertionError(f"{len(found)} of {number} records came")


class SourceSuite:
    @pytest.fixture
    async def end(self) -> SourceEnd:
        raise NotImplementedError("a suite's subclass brings the fixture `end`")

    @pytest.fixture
    async def source(self, end: SourceEnd) -> AsyncIterator[Source]:
        source = await end.open()
        yield source
        await source.close()

    async def test_records_come_in_order(self, source: Source, end: SourceEnd) -> None:
        await end.publish(values(100))
        assert [r.value for r in await collect(source, 100)] == values(100)

    async def test_every_byte_comes_as_it_was(self, source: Source, end: SourceEnd) -> None:
        odd = bytes(range(256)) * 4
        await end.publish([odd, b""])
        assert [r.value for r in await collect(source, 2)] == [odd, b""]

    async def test_headers_come_along(self, source: Source, end: SourceEnd) -> None:
        await end.publish([b"x"])
        (record,) = await collect(source, 1)
        assert record.headers["x-trace"] == "a b"

    async def test_no_hostile_record_hurts_those_beside_it(self, end: SourceEnd) -> None:
        before, behind = values(INNOCENTS // 2), values(INNOCENTS // 2, "behind")
        await end.publish(before)
        hostile = await end.publish_hostile(b"hostile")
        await end.publish(behind)
        source = await end.open()
        records = await collect(source, INNOCENTS + hostile)
        await source.close()
        innocents = [record for record in records if record.value != b"hostile"]
        assert [record.value for record in innocents] == [*before, *behind]
        assert all(record.headers["x-trace"] == "a b" for record in innocents)
        assert all(
            isinstance(text, str) for r in records for pair in r.headers.items() for text in pair
        )
        again = await end.open()
        await end.publish(values(1, "later"))
        assert [record.value for record in await collect(again, 1)] == [b"later-0"]
        await again.close()

    async def test_a_read_takes_no_more_than_asked(self, source: Source, end: SourceEnd) -> None:
        await end.publish(values(30))
        for _ in range(TRIES):
            got = await source.read(7)
            assert len(got) <= 7
            if got:
                break

    async def test_nothing_there_is_an_empty_read(self, source: Source) -> None:
        assert list(await source.read(10)) == []

    async def test_what_was_not_done_comes_again_from_the_same_origin(self, end: SourceEnd) -> None:
        await end.publish(values(5))
        first = await end.open()
        before = await collect(first, 5, done=False)
        await first.close()
        second = await end.open()
        after = await collect(second, 5)
        await second.close()
        assert [(r.value, r.origin) for r in after] == [(r.value, r.origin) for r in before]
        assert len({r.origin for r in after}) == 5

    async def test_what_was_done_does_not_come_again(self, end: SourceEnd) -> None:
        await end.publish(values(5))
        first = await end.open()
        await collect(first, 5)
        await first.close()
        await end.publish(values(3, "later"))
        second = await end.open()
        assert [r.value for r in await collect(second, 3)] == values(3, "later")
        await second.close()

    async def test_held_records_can_be_done_afterwards(
        self, source: Source, end: SourceEnd
    ) -> None:
        await end.publish(values(5))
        held = await collect(source, 5, done=False)
        for _ in range(3):
            await source.hold(held)
        await source.done(held)
        await end.publish(values(3, "later"))
        assert [r.value for r in await collect(source, 3)] == values(3, "later")

    async def test_it_finds_its_way_back(self, source: Source, end: SourceEnd) -> None:
        await end.publish(values(3))
        await collect(source, 3)
        await end.leave()
        with pytest.raises(SourceUnavailable):
            await source.check()
        await end.recover()
        await end.publish(values(3, "later"))
        # At least once: records done just before may come again.
        came: set[bytes] = set()
        while not came.issuperset(values(3, "later")):
            came |= {r.value for r in await collect(source, 1)}

    async def test_done_for_a_lost_connection_is_no_error_but_a_repeat(
        self, source: Source, end: SourceEnd
    ) -> None:
        await end.publish(values(3))
        held = await collect(source, 3, done=False)
        await end.leave()
        await end.recover()
        try:
            await source.done(held)
        except SourceUnavailable:
            await collect(source, 3)
        await end.publish(values(1, "later"))
        while (await collect(source, 1))[0].value != b"later-0":
            continue

    async def test_check_passes_while_the_broker_is_there(self, source: Source) -> None:
        await source.check()

    async def test_closing_twice_is_closing_once(self, end: SourceEnd) -> None:
        source = await end.open()
        await source.read(1)
        await source.close()
        await source.close()

    async def test_neither_name_nor_errors_show_a_secret(
        self, source: Source, end: SourceEnd
    ) -> None:
        await end.leave()
        with pytest.raises(SourceUnavailable) as caught:
            await source.check()
        shown = source.name + str(caught.value)
        assert not [word for word in end.secrets if word in shown]
