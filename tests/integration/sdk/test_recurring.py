"""`engine.recurring`, and functions that are called by rules."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.model.errors import ConfigError, InvalidMessage, UnknownThing, VersionConflict
from penstock.model.times import parse_moment
from penstock.testing.clock import ManualClock

NOON = parse_moment("2026-11-18T12:00:00Z")


async def test_a_program_makes_changes_and_deletes_rules() -> None:
    async with penstock.open("memory://", clock=ManualClock(NOON)) as engine:
        rules = engine.recurring
        put = await rules.put(
            "daily",
            cron="0 9 * * mon-fri",
            zone="Europe/Berlin",
            payload={"a": 1},
            start=datetime(2026, 1, 1, tzinfo=UTC),
            jitter=timedelta(seconds=30),
            labels={"class": "transactional"},
        )
        assert put.words == "At 09:00, Monday to Friday (Europe/Berlin)"
        assert put.next[0] == "2026-11-19T08:00:00.000Z"
        shown = await rules.get("daily")
        assert shown.payload == b'{"a":1}'
        assert (shown.start, shown.jitter, shown.version) == ("2026-01-01T00:00:00.000Z", 30.0, 1)
        with pytest.raises(VersionConflict):
            await rules.put("daily", every="1h", version=9)
        assert (await rules.pause("daily")).state == "paused"
        assert (await rules.resume("daily", version=2)).state == "active"
        assert [rule.id for rule in (await rules.list())[0]] == ["daily"]
        name = await rules.trigger("daily")
        assert (await engine.get(name)).payload == b'{"a":1}'
        first = datetime(2026, 11, 16, tzinfo=UTC)
        assert await rules.backfill("daily", first, "2026-11-18T11:00:00Z") == 3
        assert len((await rules.preview(every="15m")).next) == 5
        await rules.delete("daily")
        with pytest.raises(UnknownThing):
            await rules.get("daily")


async def test_bytes_are_sent_as_they_are() -> None:
    async with penstock.open("memory://", clock=ManualClock(NOON)) as engine:
        await engine.recurring.put("r", every="1h", payload=b"\x00\xff", content_type="x/y")
        assert (await engine.recurring.get("r")).payload == b"\x00\xff"
        message = await engine.get(await engine.recurring.trigger("r"))
        assert (message.payload, message.content_type) == (b"\x00\xff", "x/y")


async def test_decorated_functions_are_called_at_their_moments() -> None:
    clock = ManualClock(NOON)
    called: list[str] = []
    opening = penstock.open(
        "memory://", clock=clock, routes={"default": lambda _: None}, worker=True
    )
    async with opening as engine:

        @engine.every("1m")
        async def clean_up() -> None:
            called.append("clean_up")

        @engine.cron("2 12 * * *", zone="UTC", name="report")
        async def made_at_two_past(message: penstock.Message) -> None:
            called.append(message.id)

        await engine.recurring.ready()
        await clock.advance(60_000)
        assert called == ["clean_up"]
        await clock.advance(60_000)
        assert called.count("clean_up") == 2
        assert "report@2026-11-18T12:02:00Z" in called
        rules, _ = await engine.recurring.list()
        assert [(rule.id, rule.route) for rule in rules] == [
            ("clean_up", "clean_up"),
            ("report", "report"),
        ]


async def test_a_function_that_is_not_async_is_called_too() -> None:
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with penstock.open("memory://", worker=True) as engine:

        @engine.every("1s")
        def tick() -> None:
            loop.call_soon_threadsafe(called.set)

        await asyncio.wait_for(called.wait(), 60)
        await engine.recurring.delete("tick")


async def test_what_makes_no_sense_is_said_where_it_is_written() -> None:
    async with penstock.open("memory://", worker=True) as engine:
        with pytest.raises(InvalidMessage, match="cron"):

            @engine.cron("0 0 30 2 *")
            async def never() -> None: ...

    async with penstock.open("memory://") as engine:
        with pytest.raises(ConfigError, match="worker=True"):

            @engine.every("1m")
            async def nobody() -> None: ...


async def test_processes_that_start_at_once_make_a_rule_of_the_settings_once(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/rules.db"
    for every, gone, version in (("1h", (), 1), ("2h", ("old",), 2)):
        written: dict[str, Any] = {"poll": {"every": every, "managed": True}}
        if not gone:
            written["old"] = {"every": "1h", "managed": True}
        async with AsyncExitStack() as stack:
            opening = (
                stack.enter_async_context(penstock.open(store, recurring=written)) for _ in range(6)
            )
            engine, *_ = await asyncio.gather(*opening)
            assert (await engine.recurring.get("poll")).version == version
            page, _ = await engine.recurring.list()
            assert [rule.id for rule in page] == sorted(written)


async def test_rules_of_the_settings_are_there_at_start() -> None:
    written = {"daily": {"cron": "0 9 * * *", "payload": {"a": [1, 2]}, "managed": True}}
    async with penstock.open("memory://", recurring=written) as engine:
        shown = await engine.recurring.get("daily")
        assert shown.managed
    with pytest.raises(ConfigError, match=r"recurring\.daily\.cron"):
        async with penstock.open("memory://", recurring={"daily": {"cron": "nonsense"}}):
            pass
    with pytest.raises(ConfigError, match=r"recurring\.daily\.route"):
        async with penstock.open("memory://", recurring={"daily": {"every": "1h", "route": "x"}}):
            pass
