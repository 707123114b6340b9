"""A prepared call: the shortest way to the server, and what becomes of it when that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import cast

import pytest
from redis import exceptions as vendor

from penstock.model.errors import StoreUnavailable
from penstock.redis_kit.connect import Argument, Server, packed
from penstock.redis_kit.runner import Runner
from penstock.stores.redis.messages.put import PUT_ONE

COMMAND = ("EVALSHA", PUT_ONE.sha, 1, b"key", 7, b"a", b"b", b"", b"d")


class Short:
    """A server that has one outcome for the short way, and notes what is called."""

    cluster = False

    def __init__(self, outcome: object) -> None:
        self._outcome = outcome
        self.quick_asked: list[bytes] = []
        self.called: list[Sequence[Argument]] = []

    def quick(self, command: bytes) -> Awaitable[object] | None:
        self.quick_asked.append(command)
        return None if self._outcome is None else self._answer()

    async def _answer(self) -> object:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def call(self, *command: Argument) -> object:
        self.called.append(command)
        return "called"


async def _ask(server: Short) -> object:
    runner = Runner(cast("Server", server), "redis://h")
    call = runner.prepare(PUT_ONE, 0, [b"key"], 7)
    return await runner.call_prepared(call, b"a", b"b", b"", b"d")


async def test_the_short_way_carries_the_whole_command() -> None:
    server = Short("quick")
    assert await _ask(server) == "quick"
    assert (server.quick_asked, server.called) == ([packed(COMMAND)], [])


@pytest.mark.parametrize(
    "outcome", [None, vendor.NoScriptError("no script"), vendor.ConnectionError("closed")]
)
async def test_where_that_is_closed_or_has_failed_it_is_called(outcome: object) -> None:
    server = Short(outcome)
    assert await _ask(server) == "called"
    assert server.called == [COMMAND]


async def test_a_time_out_took_long_enough_and_is_not_tried_again() -> None:
    server = Short(vendor.TimeoutError("no answer in 3 s"))
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await _ask(server)
    assert server.called == []
