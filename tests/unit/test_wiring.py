"""The scheme tables: whatever is named there has what the composition root asks of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

import pytest

from penstock.model.errors import ConfigError
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.schemes import SINKS, SOURCES, STORES, driver_of, store_driver
from penstock.sdk.asked import draft
from penstock.settings import given
from penstock.stores.memory import MemoryStore
from penstock.testing.clock import ManualClock
from penstock.wiring import (
    driver_problems,
    nothing_to_read,
    open_parts,
    open_rooms,
    open_worker,
    put_configured,
)
from tests.unit.flow.rig import FakeSink

CAP = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h"}


@pytest.mark.parametrize("scheme", STORES)
def test_every_store_opens_and_says_whether_there_is_anything_to_read(scheme: str) -> None:
    driver = store_driver(f"{scheme}://")
    assert callable(driver.open_store)
    assert callable(driver.nothing_to_read)


@pytest.mark.parametrize("url", ["redis://:hush@[::1/0", "postgresql://ann:hush@[::1/shop"])
def test_what_is_no_address_is_refused_by_its_field_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^store: this is no address") as refused:
        store_driver(url)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("table", "url"),
    [
        (STORES, "postgresql://ann:Xhush/hush0@db/shop"),
        (STORES, "postgresql://ann:12/hush0@db/shop"),
        (STORES, "redis://:Xhush/hush0@h/0"),
        (STORES, "redis://:12/hush0@h/0"),
        (STORES, "redis+cluster://:Xhush#hush0@h:1,h:2"),
        (SINKS, "rabbitmq://ann:Xhush/hush0@h/queue"),
        (SINKS, "nats://ann:Xhush?hush0@h/subject"),
        (SINKS, "kafka://ann:Xhush/hush0@h:1,h:2/topic"),
        (SINKS, "https://ann:Xhush/hush0@h/hook"),
        (SOURCES, "rabbitmq://ann:Xhush#hush0@h/queue"),
    ],
)
def test_a_password_that_ends_its_address_early_is_not_quoted(
    table: Mapping[str, tuple[str, str | None]], url: str
) -> None:
    with pytest.raises(ConfigError, match="write %2F, %3F or %23") as refused:
        driver_of(table, url, "field")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("table", "url"),
    [
        (STORES, "sqlite:///a@b.db"),
        (STORES, "postgresql://ann:h%2Fush@db/shop"),
        (STORES, "redis://[::1]:6379/0"),
        (SINKS, "https://hooks.example:8443/to?mail=a@b"),
        (SINKS, "nats://h:4222/sub@ject"),
        (SINKS, "redis://h:6379/stream@1"),
        (SINKS, "python:app:handle"),
    ],
)
def test_an_at_sign_elsewhere_in_an_address_is_fine(
    table: Mapping[str, tuple[str, str | None]], url: str
) -> None:
    driver_of(table, url, "field")


@pytest.mark.parametrize("scheme", SINKS)
def test_every_sink_opens(scheme: str) -> None:
    assert callable(import_module(SINKS[scheme][0]).open_sink)


def test_a_server_elsewhere_may_always_be_read() -> None:
    assert nothing_to_read(given(store="redis://127.0.0.1:1/0")) is None


@pytest.mark.parametrize("url", ["sqlite://", "memory://"])
def test_a_store_in_memory_has_nothing_for_another_process(url: str) -> None:
    assert "in memory" in str(nothing_to_read(given(store=url)))


async def test_addresses_are_checked_without_reaching_anybody() -> None:
    good = given(store="redis://127.0.0.1:1/0", routes={"a": {"sink": "http://127.0.0.1:1/"}})
    assert await driver_problems(good) == []
    bad = given(store="pigeon://h", routes={"a": {"sink": "python:no.such:thing"}})
    assert len(await driver_problems(bad)) == 2


async def test_an_intake_topic_needs_a_store_with_a_near_future_and_a_broker() -> None:
    settings = given(store="sqlite://", intake_topic="kafka://127.0.0.1:1/ids")
    with pytest.raises(ConfigError, match="intake_topic: ids take this way only with dynamodb"):
        async with open_parts(settings):
            pass
    assert await driver_problems(settings) == []
    (problem,) = await driver_problems(given(store="sqlite://", intake_topic="http://127.0.0.1/"))
    assert problem.startswith("intake_topic: no driver for 'http'")


def only_messages(clock: ManualClock) -> Store:
    return Store(messages=MemoryStore(clock))


async def test_a_store_of_messages_alone_releases_and_tells_how_things_stand() -> None:
    clock = ManualClock()
    sink = FakeSink(clock)
    async with (
        open_parts(given(), store=only_messages(clock)) as parts,
        open_worker(parts, {"default": sink}) as worker,
        open_rooms(parts) as rooms,
    ):
        assert (parts.policies, rooms) == (None, None)
        await parts.intake.schedule([draft(id="m", delay="1s"), draft(id="later", delay="1d")])
        working = asyncio.create_task(worker.run())
        await clock.advance(2_000)
        worker.stop()
        await working
        assert sink.ids == ["m"]
        status = parts.status()
        assert (await status.forecast()).later == {"default": 1}
        assert (await status.stats()).states[State.DELIVERED] == 1
        assert (await status.dead_groups(None)).items == []


async def start(settings: dict[str, object]) -> None:
    """As a process does that releases."""
    async with open_parts(given(**settings), store=only_messages(ManualClock())) as parts:
        await put_configured(parts)
        async with open_worker(parts):
            """Nothing is asked of it."""


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"routes": {"r": {"sink": "log://", "ordered": True}}}, "need a store that keeps turns"),
        ({"policies": {"p": CAP}}, "policies: the store memory:// keeps none"),
        ({"intake_topic": "kafka://127.0.0.1:1/ids"}, "intake_topic: ids take this way only with"),
    ],
)
async def test_what_a_store_cannot_do_is_refused_at_start(
    settings: dict[str, object], refusal: str
) -> None:
    with pytest.raises(ConfigError, match=refusal):
        await start(settings)


async def test_a_payload_larger_than_the_store_takes_is_refused_at_start() -> None:
    store = replace(only_messages(ManualClock()), max_message=1_000)
    with pytest.raises(ConfigError, match="the store memory:// takes 1,000 bytes"):
        async with open_parts(given(), store=store):
            """Not reached."""
