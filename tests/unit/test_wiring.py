"""The scheme tables: whatever is named there has what the composition root asks of it."""

from __future__ import annotations

from importlib import import_module

import pytest

from penstock.drivers import SINKS, STORES
from penstock.model.errors import ConfigError
from penstock.settings import given
from penstock.wiring import driver_problems, nothing_to_read, open_parts


@pytest.mark.parametrize("scheme", STORES)
def test_every_store_opens_and_says_whether_there_is_anything_to_read(scheme: str) -> None:
    driver = import_module(STORES[scheme][0])
    assert callable(driver.open_store)
    assert callable(driver.nothing_to_read)


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
