"""A replaced system is there where the settings ask for it, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock.contrib import SYSTEMS, in_use, load, mounted
from penstock.settings import given

NAMES = {id(system): name for name, system in SYSTEMS.items()}
RABBITMQ = "rabbitmq://localhost/q"


def names(systems: list[Any]) -> list[str]:
    return [NAMES[id(system)] for system in systems]


def test_plain_settings_ask_for_none() -> None:
    plain = given(routes={"hook": {"sink": "log://"}}, sources={"orders": {"from": RABBITMQ}})
    assert names(mounted(plain)) == names(in_use(plain)) == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_can_be_asked_for_by_name(name: str) -> None:
    assert names(mounted(given(contrib=[name]))) == [name]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"routes": {"ticks": {}}}, "ticks"),
        ({"routes": {"events": {}}}, "scheduler"),
        ({"rooms": {}}, "dispatcher"),
    ],
)
def test_a_route_or_a_section_of_its_own_asks_for_it(settings: dict[str, Any], name: str) -> None:
    assert names(mounted(given(**settings))) == [name]


@pytest.mark.parametrize(
    ("word", "name"),
    [(word, name) for name, system in SYSTEMS.items() for word in system.formats],
)
def test_a_format_brings_its_system_to_sources_alone(word: str, name: str) -> None:
    settings = given(sources={"in": {"from": RABBITMQ, "format": word}})
    assert names(in_use(settings)) == [name]
    assert mounted(settings) == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_everything_that_the_table_names_is_there(name: str) -> None:
    system = SYSTEMS[name]
    named = [*system.formats.values(), *system.commands, system.sinks, system.grpc, system.monitor]
    assert all(load(one) is not None for one in named if one is not None)


def test_a_process_that_asks_for_none_imports_none() -> None:
    code = """
import asyncio, sys, penstock.cli.process, penstock.api.http.server
from penstock.settings import given
from penstock.wiring import open_parts, open_rooms, open_sources, open_worker

async def main():
    settings = given(store="sqlite:///:memory:", routes={"hook": {"sink": "log://"}})
    async with open_parts(settings) as parts, open_worker(parts), open_sources(parts):
        async with open_rooms(parts):
            pass

asyncio.run(main())
print([name for name in sys.modules if name.startswith("penstock.contrib.")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
