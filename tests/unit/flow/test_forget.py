"""What is kept for a time only: dead messages, and what an erasure left for later."""

from __future__ import annotations

import asyncio

import pytest

from penstock.flow.erase import Erase
from penstock.flow.forget import DEAD_STEP, LOOK_MS, Forget
from penstock.model.errors import AlreadyReleased, InvalidMessage, UnknownMessage
from penstock.model.outcome import Dead, RetryLater
from penstock.model.query import Filter
from penstock.model.state import State
from tests.unit.flow.rig import Engine

HOUR_MS = 3_600_000


async def _die(engine: Engine, *ids: str, **fields: object) -> None:
    """These messages are dead, at this moment."""
    engine.sink.behave = lambda _: Dead("refused")
    async with engine.working():
        for message_id in ids:
            await engine.schedule(id=message_id, payload=1, **fields)
        for _ in range(100):
            await engine.clock.advance(1)  # those behind the first wait until the sink is trusted
            if {await engine.state(one) for one in ids} == {State.DEAD}:
                return
    raise AssertionError("they do not die")


async def _age(engine: Engine, message_id: str, age: int) -> None:
    """Let time pass until the message has been dead for so long."""
    message = await engine.find(message_id)
    assert message.settled is not None
    await engine.clock.advance(message.settled + age - engine.clock.now())


async def _step_until_done(forget: Forget) -> None:
    while await forget.step():
        pass


async def test_dead_messages_are_kept_for_ever_unless_told_otherwise(engine: Engine) -> None:
    await _die(engine, "a")
    forget = Forget(engine.store, engine.observer)
    await engine.clock.advance(10_000 * HOUR_MS)
    await _step_until_done(forget)
    assert await engine.state("a") is State.DEAD


async def test_dead_messages_end_after_the_dead_retention(engine: Engine) -> None:
    many = [f"old-{number:03d}" for number in range(DEAD_STEP + 20)]
    await _die(engine, *many)
    forget = Forget(engine.store, engine.observer, dead_retention=HOUR_MS)
    await _age(engine, many[0], HOUR_MS // 2)
    await _die(engine, "young")
    await _age(engine, many[0], HOUR_MS - 1)
    await _step_until_done(forget)
    assert (await engine.store.figures(engine.clock.now())).states[State.DEAD] == len(many) + 1
    await engine.clock.advance(LOOK_MS + 1)
    await _step_until_done(forget)
    assert await engine.store.find(many) == [None] * len(many)
    assert await engine.state("young") is State.DEAD
    assert engine.observer.counts["delete", "default"] == len(many)


async def test_a_redriven_message_is_dead_anew_from_its_second_death(engine: Engine) -> None:
    await _die(engine, "a")
    forget = Forget(engine.store, engine.observer, dead_retention=HOUR_MS)
    await _age(engine, "a", HOUR_MS - 10)
    async with engine.working():
        await engine.control.redrive("a")
        await engine.clock.settle()
    await _age(engine, "a", HOUR_MS - 10)
    await _step_until_done(forget)
    assert await engine.state("a") is State.DEAD
    await engine.clock.advance(LOOK_MS)
    await _step_until_done(forget)
    assert await engine.store.find(["a"]) == [None]


async def test_one_dead_message_is_deleted_and_nothing_else_is(engine: Engine) -> None:
    await _die(engine, "a")
    await engine.schedule(id="waiting", payload=1, delay=60)
    message = await engine.control.delete("a")
    assert (message.id, message.state) == ("a", State.DEAD)
    with pytest.raises(UnknownMessage):
        await engine.control.delete("a")
    with pytest.raises(AlreadyReleased):
        await engine.control.delete("waiting")
    assert await engine.state("waiting") is State.SCHEDULED


async def test_removing_cancels_what_waits_and_deletes_what_is_dead(engine: Engine) -> None:
    await _die(engine, "a")
    await engine.schedule(id="waiting", payload=1, delay=60)
    assert (await engine.control.remove("a"))[1] is True
    assert await engine.store.find(["a"]) == [None]
    cancelled, deleted = await engine.control.remove("waiting")
    assert (cancelled.state, deleted) == (State.CANCELLED, False)
    with pytest.raises(UnknownMessage):
        await engine.control.remove("a")


async def test_the_dead_are_deleted_by_filter_with_a_count(engine: Engine) -> None:
    await _die(engine, "a", "b", key="one")
    await _die(engine, "c", key="two")
    await engine.schedule(id="waiting", payload=1, delay=60, key="one")
    where = Filter(key="one", error="refused")
    counted = await engine.control.delete_where(where, dry_run=True)
    assert (counted.matched, counted.done) == (2, 0)
    deleted = await engine.control.delete_where(where)
    assert (deleted.matched, deleted.done) == (2, 2)
    assert await engine.store.find(["a", "b"]) == [None, None]
    assert await engine.state("c") is State.DEAD
    assert await engine.state("waiting") is State.SCHEDULED
    with pytest.raises(InvalidMessage, match="only dead messages can be deleted"):
        await engine.control.delete_where(Filter(state=State.DELIVERED))


async def test_everything_of_a_key_is_erased_and_nothing_of_another(engine: Engine) -> None:
    assert engine.policies is not None
    await engine.put_policies(cap={"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"})
    async with engine.working():
        for key in ("one", "two"):
            await engine.schedule(id=f"{key}-sent", payload=1, key=key)
        await engine.clock.settle()
    await _die(engine, "one-dead", key="one")
    for key in ("one", "two"):
        await engine.schedule(id=f"{key}-waits", payload=1, key=key, delay=3600)
    erased = await Erase(engine.store, engine.policies).erase("one")
    assert (erased.messages, erased.counters, erased.pending, erased.next) == (3, 1, 0, None)
    assert await engine.store.find(["one-sent", "one-dead", "one-waits"]) == [None] * 3
    assert [f.used for f in await engine.policies.counters("one")] == [0]
    assert [f.used for f in await engine.policies.counters("two")] == [1]
    assert await engine.state("two-waits") is State.SCHEDULED
    again = await Erase(engine.store, engine.policies).erase("one")
    assert (again.messages, again.counters, again.pending) == (0, 0, 0)


async def test_a_message_whose_key_is_its_id_is_erased_by_it(engine: Engine) -> None:
    await engine.schedule(id="alone", payload=1, delay=60)
    assert (await Erase(engine.store, None).erase("alone")).messages == 1
    assert await engine.store.find(["alone"]) == [None]


async def test_a_message_being_sent_is_erased_when_its_lease_has_ended(engine: Engine) -> None:
    assert engine.policies is not None
    await engine.put_policies(cap={"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"})
    erase = Erase(engine.store, engine.policies)
    engine.sink.gate = asyncio.Event()
    async with engine.working():
        await engine.schedule(id="a", payload=1, key="one")
        await engine.clock.settle()
        erased = await erase.erase("one")
        assert (erased.messages, erased.pending) == (0, 1)
        await erase.sweep()
        assert await engine.state("a") is State.LEASED
        engine.sink.gate.set()
        await engine.clock.settle()
    assert await engine.state("a") is State.DELIVERED
    # Any process does it, also one that was not there when it was asked for.
    await Forget(engine.store, engine.observer, erase=Erase(engine.store, engine.policies)).step()
    assert await engine.store.find(["a"]) == [None]
    assert await engine.store.erasures() == []
    assert [f.used for f in await engine.policies.counters("one")] == [0]


async def test_a_message_being_sent_is_not_tried_again_once_its_key_is_erased(
    engine: Engine,
) -> None:
    erase = Erase(engine.store, engine.policies)
    engine.sink.gate = asyncio.Event()

    def fails(_: object) -> Dead:
        raise RetryLater("not now")

    engine.sink.behave = fails
    async with engine.working():
        await engine.schedule(id="a", payload=1, key="one")
        await engine.clock.settle()
        assert (await erase.erase("one")).pending == 1
        engine.sink.gate.set()
        await engine.clock.settle()
        await erase.sweep()
    assert await engine.store.find(["a"]) == [None]
    assert len(engine.sink.sent) == 1


async def test_an_erasure_of_many_goes_on_where_it_stopped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.flow.erase.STEP", 10)
    monkeypatch.setattr("penstock.flow.erase.PAGES", 3)
    for number in range(75):
        await engine.schedule(id=f"m{number}", payload=1, key="one", delay=60 + number)
    erase, total, cursor, calls = Erase(engine.store, None), 0, None, 0
    while True:
        erased = await erase.erase("one", cursor)
        total, cursor, calls = total + erased.messages, erased.next, calls + 1
        if cursor is None:
            break
    assert (total, calls) == (75, 3)
    assert (await engine.store.figures(engine.clock.now())).states[State.SCHEDULED] == 0
