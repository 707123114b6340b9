"""The client without an event loop is written from the one with, and says the same calls."""

from __future__ import annotations

import inspect

import pytest

import penstock
from penstock.api.verbs import BY_NAME, SCHEMAS, load
from penstock.sdk import calls
from penstock.sdk.async_rooms import AsyncRooms
from penstock.sdk.sync_rooms import SyncRooms
from scripts import clients


@pytest.mark.parametrize(("source", "target"), clients.FILES.items())
def test_the_client_without_a_loop_is_the_written_one(source: str, target: str) -> None:
    committed = (clients.SDK / target).read_text()
    assert committed == clients.written(source, target), "run: python scripts/clients.py"


@pytest.mark.parametrize(
    ("with_loop", "without"),
    [(penstock.AsyncClient, penstock.Client), (AsyncRooms, SyncRooms)],
    ids=["client", "rooms"],
)
def test_both_clients_have_the_same_signatures(with_loop: type, without: type) -> None:
    def signatures(kind: type) -> dict[str, str]:
        public = {name: verb for name, verb in vars(kind).items() if not name.startswith("_")}
        shown = {  # what is no verb (`recurring`, a group of them) is compared by its name
            name: str(inspect.signature(verb)) if callable(verb) else name
            for name, verb in public.items()
        }
        return {name: text.replace("AsyncIterator", "Iterator") for name, text in shown.items()}

    assert signatures(with_loop) == signatures(without)


def test_whatever_reads_an_answer_or_makes_a_body_is_there_and_of_a_verb() -> None:
    assert set(calls.READERS) | set(calls.BODIES) <= set(BY_NAME)
    assert set(calls.VALUES) <= set(SCHEMAS)
    for names in (calls.READERS, calls.BODIES, calls.VALUES, {"": calls.TIMELINE}):
        for name in names.values():
            assert callable(load(name)), name
