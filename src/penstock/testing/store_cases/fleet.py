"""FLEET: heartbeats, the forecast and dead letters, for stores that offer them."""

from __future__ import annotations

from penstock.model.fleet import Heartbeat, LaneState
from penstock.model.forecast import HOUR_MS, MINUTE_MS, Forecast
from penstock.model.lateness import Lateness
from penstock.model.outcome import Action
from penstock.ports.fleet import HeartbeatStore
from penstock.ports.store import MessageStore, Store
from penstock.testing.store_cases.base import StoreCases, amend, new, put, put_due

_DAY_MS = 24 * HOUR_MS


def _heartbeat(process: str, seen: int, **fields: object) -> Heartbeat:
    facts = {"role": "worker", "host": "h", "pid": 1, "version": "1", "started": seen, **fields}
    return Heartbeat(id=process, seen=seen, **facts)  # type: ignore[arg-type] # a test's shorthand


def _beating(store: Store) -> HeartbeatStore:
    assert store.fleet is not None
    return store.fleet


async def _forecast(store: Store) -> Forecast:
    assert store.forecasting is not None
    return await store.forecasting.forecast(store.clock.now())


class FleetCases(StoreCases):
    """The promises of `penstock.ports.fleet`, for stores that have it."""

    async def test_the_last_heartbeat_of_each_process_is_kept(self, opened: Store) -> None:
        beats, now = _beating(opened), opened.clock.now()
        late = Lateness()
        late.add([3, 900, -1])
        lane = LaneState(sink="log://", in_flight=1, capacity=2, waiting_for_sink=True)
        full = _heartbeat(
            "b",
            now + 1,
            metrics="http://127.0.0.1:9101/metrics",
            routes={"push": lane},
            counts={"push": {"released": 7}},
            lateness={"push": late},
            policies={"cap": {"blocked": 2}},
        )
        assert await beats.heartbeats() == []
        await beats.beat(_heartbeat("a", now))
        await beats.beat(_heartbeat("b", now))
        await beats.beat(full)
        found = {beat.id: beat for beat in await beats.heartbeats()}
        assert found == {"a": _heartbeat("a", now), "b": full}

    async def test_processes_not_seen_for_long_can_be_forgotten(self, opened: Store) -> None:
        beats, now = _beating(opened), opened.clock.now()
        await beats.beat(_heartbeat("old", now - 1))
        await beats.beat(_heartbeat("new", now))
        await beats.forget_heartbeats(now)
        assert [beat.id for beat in await beats.heartbeats()] == ["new"]

    async def test_a_forecast_of_nothing_is_empty(self, opened: Store) -> None:
        found = await _forecast(opened)
        assert not any(found.minutes)
        assert not any(found.hours)
        assert not found.later
        assert found.exact

    async def test_the_near_future_is_told_by_minute(
        self, opened: Store, store: MessageStore
    ) -> None:
        now = store.clock.now()
        await put_due(store, 3)
        await put_due(store, 1, priority=9)
        next_minute = now - now % MINUTE_MS + MINUTE_MS
        await put(store, new(due=next_minute), new(due=next_minute, route="other"))
        found = await _forecast(opened)
        assert found.minutes[0] == {"r": 4}
        assert found.minutes[1] == {"r": 1, "other": 1}
        assert sum(sum(hour.values()) for hour in found.hours) == 6
        assert found.exact

    async def test_every_message_is_somewhere_in_the_forecast(
        self, opened: Store, store: MessageStore
    ) -> None:
        now = store.clock.now()
        aheads = (10, 20 * MINUTE_MS, 5 * HOUR_MS, 30 * HOUR_MS, 20 * _DAY_MS, 900 * _DAY_MS)
        await put(store, *(new(due=now + ahead) for ahead in aheads for _ in range(5)))
        found = await _forecast(opened)
        assert found.minutes[0]["r"] == 5
        assert sum(minute["r"] for minute in found.minutes) == 10
        assert sum(hour["r"] for hour in found.hours) == 20
        assert found.later["r"] == 10

    async def test_what_was_cancelled_is_no_longer_expected_soon(
        self, opened: Store, store: MessageStore
    ) -> None:
        now = store.clock.now()
        await put(store, new("near", due=now + MINUTE_MS), new("stays", due=now + MINUTE_MS))
        await amend(store, Action.CANCEL, "near")
        found = await _forecast(opened)
        assert sum(minute["r"] for minute in found.minutes) == 1
