"""Who embeds Penstock pays for the library alone; each extra brings what its parts import."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from penstock.schemes import SINKS, SOURCES, STORES
from tests.architecture.distributions import PROJECT, needed, run_with

EXTRAS = PROJECT["optional-dependencies"]

EMBEDDED = """
import asyncio, penstock

async def main():
    sent = asyncio.Event()
    async def handle(message):
        sent.set()
    opened = penstock.open("sqlite:///:memory:", routes={"default": handle}, worker=True)
    async with opened as engine:
        await engine.schedule({"hello": "later"})
        await sent.wait()

asyncio.run(main())
penstock.Client, penstock.AsyncClient, penstock.Draft
"""
SERVER = """
import penstock.api.http.server, penstock.cli.process
from penstock.cli import main
sys.argv = ["penstock", "--help"]
main()
"""
NO_SERVER_PART = """
import penstock
ours = [name for name in sys.modules if name.startswith("penstock")]
assert ours == ["penstock", "penstock.version"] or ours == ["penstock.version", "penstock"], ours
"""


def test_the_library_is_at_most_twenty_packages() -> None:
    assert len(needed()) <= 20, sorted(needed())


def test_the_server_is_at_most_thirty_five_packages() -> None:
    assert len(needed(["server"])) <= 35, sorted(needed(["server"]))


def test_no_dependency_is_pinned_to_one_version() -> None:
    for line in [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]:
        assert not any(part.operator in {"==", "==="} for part in Requirement(line).specifier), line


def test_all_is_every_other_extra() -> None:
    (everything,) = EXTRAS["all"]
    assert Requirement(everything).extras == set(EXTRAS) - {"all"}


def test_the_library_schedules_and_releases_without_any_extra() -> None:
    done = run_with([], EMBEDDED)
    assert done.returncode == 0, done.stderr


def test_importing_penstock_loads_nothing_else() -> None:
    done = run_with([], NO_SERVER_PART)
    assert done.returncode == 0, done.stderr


def test_the_server_needs_its_own_extra_alone() -> None:
    done = run_with(["server"], SERVER)
    assert done.returncode == 0, done.stderr


def test_the_command_names_the_extra_that_it_needs() -> None:
    done = run_with([], 'import runpy; runpy.run_module("penstock", run_name="__main__")')
    assert done.returncode == 2
    assert "pip install 'penstock-engine[server]'" in done.stderr


@pytest.mark.parametrize(
    ("module", "extra"), sorted({*STORES.values(), *SINKS.values(), *SOURCES.values()}, key=str)
)
def test_a_driver_imports_what_its_extra_brings(module: str, extra: str | None) -> None:
    done = run_with([extra] if extra else [], f"import {module}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("extras", "modules"),
    [
        (["server", "sms"], ["sms.commands", "sms.monitor", "sms.sender", "sms.producer"]),
        (["server", "kafka"], ["ticks.commands", "ticks.consume", "ticks.generate"]),
        (["server", "redis"], ["dispatcher.broker", "dispatcher.dispatch"]),
        (["server"], ["sender.decision_batch", "sender.sinks", "sender.provider"]),
        (["server", "grpc", "kafka"], ["scheduler_service.client", "scheduler_service.consumer"]),
    ],
)
def test_a_replaced_system_needs_its_documented_extras(
    extras: list[str], modules: list[str]
) -> None:
    done = run_with(extras, "\n".join(f"import penstock.contrib.{one}" for one in modules))
    assert done.returncode == 0, done.stderr
