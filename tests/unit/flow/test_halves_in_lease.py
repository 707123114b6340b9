"""A batch that a sink raises for is sent again in halves, while its lease is held and no longer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, SendOutcome
from penstock.model.route import Route
from tests.unit.flow.rig import Engine, FakeSink

NAMES = ("m0", "m1", "m2", "m3")


class Slow(FakeSink):
    """Raises for every batch of several, after a while that is longer than a lease."""

    wait = 0

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        now = self.clock.now()
        self.sent += [(message.id, message.attempt, now) for message in batch]
        if len(batch) > 1:
            await self.clock.sleep_until(now + self.wait)
            raise OSError("broken pipe")
        return [DELIVERED for _ in batch]


@pytest.fixture
async def sink(engine: Engine) -> Slow:
    sink = Slow(engine.clock)
    sink.wait = 2 * engine.lease
    engine.add_route(Route(name="r"), sink)
    for name in NAMES:
        await engine.schedule(id=name, route="r")
    return sink


async def _pass(engine: Engine, millis: int) -> None:
    for _ in range(millis // 1_000):
        await engine.clock.advance(1_000)


async def test_a_lease_that_is_extended_lets_every_half_go_in_the_same_attempt(
    engine: Engine, sink: Slow
) -> None:
    async with engine.working():
        await _pass(engine, 6 * engine.lease)
    assert {attempt for _, attempt, _ in sink.sent} == {1}
    assert engine.observer.total("delivered") == len(NAMES)
    assert engine.observer.total("stale") == 0


async def test_no_half_is_sent_once_the_lease_has_ended(
    engine: Engine, sink: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may have sent it by then."""

    async def away(_tokens: Sequence[int], _until: int) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(engine.store, "extend", away)
    async with engine.working():
        await _pass(engine, sink.wait + 1_000)
        assert [attempt for name, attempt, _ in sink.sent if name == "m0"] == [1, 2]
        sink.wait = 0
        await _pass(engine, 2 * engine.lease)
    assert engine.observer.total("delivered") == len(NAMES)
    for name in NAMES:
        attempts = [attempt for sent, attempt, _ in sink.sent if sent == name]
        assert attempts == sorted(attempts)
        assert attempts.count(1) == 1
