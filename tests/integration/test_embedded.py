"""Penstock inside a program: the verbs, the worker beside the block, and errors as they are."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock


class OfTheirOwn(Exception):
    """What a caller's block raises."""


async def test_a_scheduled_message_reaches_the_function(tmp_path: Path) -> None:
    got: asyncio.Future[penstock.Message] = asyncio.get_running_loop().create_future()

    async def handle(message: penstock.Message) -> None:
        got.set_result(message)

    url = f"sqlite:///{tmp_path}/jobs.db"
    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        receipt = await engine.schedule({"a": 1}, delay="5ms", id="m", headers={"x": "y"})
        message = await got
        assert (message.id, message.payload, message.headers) == ("m", b'{"a":1}', {"x": "y"})
        assert engine.clock.now() >= receipt.due
    async with penstock.open(url) as engine:
        assert (await engine.get("m")).state is penstock.State.DELIVERED


async def test_what_is_scheduled_survives_the_program(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with penstock.open(url) as engine:
        await engine.schedule(b"\x00raw", id="m", at=datetime.now(UTC) + timedelta(days=400))
    async with penstock.open(url) as engine:
        message = await engine.get("m")
        assert (message.payload, message.content_type) == (b"\x00raw", "application/octet-stream")


async def test_cancel_reschedule_and_release_answer_definitely() -> None:
    async with penstock.open("sqlite://") as engine:
        await engine.schedule(1, id="m", delay="1h")
        moved = await engine.reschedule("m", delay="2h", payload=2, version=1)
        assert (moved.version, moved.payload) == (2, b"2")
        with pytest.raises(penstock.VersionConflict):
            await engine.reschedule("m", delay="3h", version=1)
        released = await engine.release("m")
        assert released.due <= engine.clock.now()
        assert (await engine.cancel("m")).state is penstock.State.CANCELLED
        assert (await engine.cancel("m")).state is penstock.State.CANCELLED
        with pytest.raises(penstock.AlreadyReleased):
            await engine.release("m")
        with pytest.raises(penstock.UnknownMessage):
            await engine.cancel("nobody")


async def test_a_naive_datetime_is_refused_with_the_remedy() -> None:
    async with penstock.open("sqlite://") as engine:
        with pytest.raises(penstock.InvalidMessage, match="time zone"):
            await engine.schedule(1, at=datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake itself


async def test_an_error_in_the_block_comes_out_as_itself() -> None:
    async def handle(message: penstock.Message) -> None: ...

    with pytest.raises(OfTheirOwn):
        async with penstock.open("sqlite://", routes={"default": handle}, worker=True):
            raise OfTheirOwn


async def test_a_worker_that_breaks_ends_the_block_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(self: object) -> None:
        raise OfTheirOwn

    monkeypatch.setattr("penstock.flow.forget.Forget.run", broken)
    with pytest.RaisesGroup(OfTheirOwn):
        async with penstock.open("sqlite://", worker=True):
            await asyncio.sleep(60)


async def test_an_error_of_any_characters_is_its_messages_own(tmp_path: Path) -> None:
    """Half a surrogate pair is no text for a store: the worker goes on, and the error is shown."""
    came: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: penstock.Message) -> None:
        await came.put(message.id)
        if message.id == "bad":
            raise penstock.Reject("\ud800 and \x00")

    url = f"sqlite:///{tmp_path}/jobs.db"
    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        await engine.schedule_many([{"id": name, "payload": 1} for name in ("bad", "good")])
        assert {await came.get(), await came.get()} == {"bad", "good"}
    async with penstock.open(url) as engine:
        bad = await engine.get("bad")
        assert (bad.state, bad.last_error) == (penstock.State.DEAD, r"\ud800 and \x00")
        assert (await engine.get("good")).state is penstock.State.DELIVERED


async def test_without_routes_any_name_is_taken_for_another_process_to_serve() -> None:
    async with penstock.open("sqlite://") as engine:
        assert (await engine.schedule(1, route="elsewhere")).state is penstock.State.SCHEDULED
        with pytest.raises(penstock.InvalidMessage):
            await engine.schedule(1, route="not a name")


async def test_policies_given_at_the_start_are_in_force(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    got: list[str] = []
    last = asyncio.Event()

    def handle(message: penstock.Message) -> None:
        got.append(message.id)
        if message.id == "c":
            last.set()

    cap = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h", "on_exceed": "BLOCK"}
    async with penstock.open(
        url, routes={"default": handle}, worker=True, policies={"hourly": cap}
    ) as engine:
        for name, key in (("a", "ann"), ("b", "ann"), ("c", "bob")):
            await engine.schedule({}, id=name, key=key)
        await asyncio.wait_for(last.wait(), 300)
    assert got == ["a", "c"]
    async with penstock.open(url) as engine:
        assert (await engine.get("b")).last_error == "hourly: 1 of 1 in 1h"


async def test_what_cannot_be_a_route_is_told_what_can() -> None:
    wrong: Any = {"default": 5}
    with pytest.raises(penstock.ConfigError, match=r"routes.default: 5 .*URL.*function.*mapping"):
        async with penstock.open("sqlite://", routes=wrong):
            pass
