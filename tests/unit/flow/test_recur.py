"""Planting: put, then advance; a death in between misses nothing and repeats nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.flow.recur import AGAIN_MS, Plant, Planter
from penstock.flow.recurring import Configured, Recurring
from penstock.flow.worker import Worker
from penstock.model.errors import (
    InvalidMessage,
    StoreUnavailable,
    TooLarge,
    UnknownRoute,
    UnknownThing,
    VersionConflict,
)
from penstock.model.forecast import Forecast
from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt, Settlement
from penstock.model.recurrence import GRACE_MS, occurrence_id, rule_from
from penstock.model.route import Route
from penstock.model.state import State
from penstock.model.times import format_moment, parse_moment
from penstock.ports.recurring import LOOK_MS, DueRules, Swap
from penstock.ports.store import Store
from penstock.stores.memory import MemoryStore
from penstock.stores.memory.recurring import MemoryRecurring
from penstock.testing.clock import ManualClock
from tests.unit.flow.rig import FakeSink

NOON = parse_moment("2026-11-18T12:00:00Z")
MINUTE = 60_000


@dataclass
class Rig:
    """A store on a clock that stands still, and what plants into it."""

    clock: ManualClock
    memory: MemoryStore
    store: Store
    rules: MemoryRecurring
    observer: Observer
    plant: Plant
    recurring: Recurring

    def planter(self) -> Planter:
        return Planter(self.rules, self.store, self.plant)

    async def put(self, rule_id: str, **fields: Any) -> None:
        await self.recurring.put(rule_id, rule_from(fields))

    @property
    def ids(self) -> list[str]:
        return sorted(self.memory.book.records)

    def state(self, message_id: str) -> State:
        return self.memory.book.records[message_id].message.state

    async def deliver(self) -> list[str]:
        """Claim and settle what is due; their ids."""
        now = self.clock.now()
        claim = await self.store.messages.claim("default", 1_000, 30_000, now)
        await self.store.messages.settle(
            [Settlement(m, claim.token, State.DELIVERED, "delivered") for m in claim.messages], now
        )
        return sorted(message.id for message in claim.messages)


@asynccontextmanager
async def running(planter: Planter) -> AsyncIterator[None]:
    task = asyncio.create_task(planter.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def make_rig(
    routes: frozenset[str] | None = frozenset({"default"}), max_message: int | None = None
) -> Rig:
    clock = ManualClock(NOON)
    memory = MemoryStore(clock)
    store = memory.as_store()
    observer = Observer()
    intake = Intake(store.messages, observer, routes=routes, max_message=max_message)

    async def served() -> frozenset[str]:
        return frozenset({"elsewhere"})

    plant = Plant(memory.recurring, store, intake, observer, routes=routes, served=served)
    recurring = Recurring(memory.recurring, store, intake, plant, routes=routes)
    return Rig(clock, memory, store, memory.recurring, observer, plant, recurring)


@pytest.fixture
def rig() -> Rig:
    return make_rig()


def ids(rule: str, *minutes: int) -> list[str]:
    return [f"{rule}@2026-11-18T12:{minute:02}:00Z" for minute in minutes]


async def test_every_moment_becomes_a_message(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m", payload={"a": 1})
        await rig.clock.advance(3 * MINUTE)
    assert rig.ids == ids("r", 1, 2, 3)
    assert rig.observer.counts["planted", "default"] == 3


async def test_workers_without_a_leader_plant_each_moment_once(rig: Rig) -> None:
    async with running(rig.planter()), running(rig.planter()), running(rig.planter()):
        for number in range(20):
            await rig.put(f"r{number}", every="1m")
        await rig.clock.advance(2 * MINUTE)
    assert len(rig.ids) == 40
    assert rig.observer.counts["planted", "default"] == 40
    rows = [row async for row in every_row(rig)]
    assert all((row.planted, row.missed) == (2, 0) for row in rows)


async def every_row(rig: Rig) -> Any:
    for row in await rig.rules.page(None, 1_000):
        yield row


async def test_a_death_between_put_and_advance_repeats_a_put_that_is_known(rig: Rig) -> None:
    await rig.put("r", every="1m")

    async def dies(_: object) -> list[bool]:
        raise asyncio.CancelledError

    whole, rig.rules.swap = rig.rules.swap, dies  # type: ignore[assignment, method-assign]
    rig.clock.jump(MINUTE)
    due = await rig.rules.due(rig.clock.now(), 10)
    with pytest.raises(asyncio.CancelledError):
        await rig.plant.rows(due.rows, rig.clock.now())
    rig.rules.swap = whole  # type: ignore[method-assign]
    assert rig.ids == ids("r", 1)
    async with running(rig.planter()):
        await rig.clock.advance(MINUTE)
    assert rig.ids == ids("r", 1, 2)
    assert rig.observer.counts["planted", "default"] == 2


async def test_a_rule_put_while_a_planter_sleeps_wakes_it(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.clock.advance(10_500)
        await rig.put("r", every="1s")
        await rig.clock.advance(800)
    assert rig.ids == ["r@2026-11-18T12:00:11Z", "r@2026-11-18T12:00:12Z"]


async def test_a_clock_set_back_while_the_store_is_asked_stops_no_planter(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    due, asked = rig.rules.due, 0

    async def slowly(now: int, limit: int) -> DueRules:
        nonlocal asked
        asked += 1
        await gate.wait()
        return await due(now, limit)

    monkeypatch.setattr(rig.rules, "due", slowly)
    async with running(rig.planter()):
        await rig.clock.settle()
        rig.clock.jump(-300_000)
        gate.set()
        await rig.clock.settle()
        assert asked == 1
        await rig.clock.advance(3 * LOOK_MS)
    assert asked > 1


async def test_an_outage_of_a_month_plants_the_latest(rig: Rig) -> None:
    await rig.put("r", cron="0 9 * * *", zone="Europe/Berlin")
    rig.clock.jump(30 * 86_400_000)
    async with running(rig.planter()):
        await rig.clock.advance(0)
    assert rig.ids == ["r@2026-12-18T08:00:00Z"]
    assert rig.observer.counts["missed", "default"] == 29


@pytest.mark.parametrize(
    ("misfire", "planted", "missed"),
    [("latest", 1, 30 * 1440 - 1), ("skip", 0, 30 * 1440), ("all", 2_880, 30 * 1440 - 2_880)],
)
async def test_an_outage_of_a_month_is_made_up_for_as_the_rule_says(
    rig: Rig, misfire: str, planted: int, missed: int
) -> None:
    await rig.put("r", every="1m", misfire=misfire, catch_up="2d")
    rig.clock.jump(30 * 86_400_000 + GRACE_MS + 1)
    async with running(rig.planter()):
        await rig.clock.advance(0)
    assert len(rig.ids) == planted
    (row,) = await rig.rules.rules(["r"])
    assert row is not None
    assert (row.planted, row.missed) == (planted, missed)


async def test_what_is_triggered_and_backfilled_does_not_count_for_the_limit(rig: Rig) -> None:
    await rig.put("r", every="1m", limit=2)
    await rig.recurring.trigger("r")
    await rig.recurring.backfill("r", format_moment(NOON - 5 * MINUTE), format_moment(NOON))
    async with running(rig.planter()):
        await rig.clock.advance(5 * MINUTE)
    shown = await rig.recurring.get("r")
    assert (shown.state, shown.planted, shown.next) == ("ended", 2, [])
    assert {*ids("r", 1, 2)} <= {*rig.ids}
    assert not {*ids("r", 3, 4, 5)} & {*rig.ids}


async def test_one_that_is_being_sent_is_not_sent_again_when_it_is_replaced(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m", overlap="replace")
        await rig.clock.advance(MINUTE)
        now = rig.clock.now()
        claim = await rig.store.messages.claim("default", 10, 30_000, now)
        await rig.clock.advance(MINUTE)
        assert [rig.state(name) for name in ids("r", 1, 2)] == [State.LEASED, State.SCHEDULED]
    now = rig.clock.now()
    retry = Settlement(claim.messages[0], claim.token, State.SCHEDULED, "retry", due=now + 1)
    await rig.store.messages.settle([retry], now)
    assert rig.state(*ids("r", 1)) is State.CANCELLED


@pytest.mark.parametrize("overlap", ["skip", "replace"])
async def test_one_that_is_dead_holds_nothing_back(rig: Rig, overlap: str) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m", overlap=overlap)
        await rig.clock.advance(MINUTE)
        now = rig.clock.now()
        claim = await rig.store.messages.claim("default", 10, 30_000, now)
        dead = Settlement(claim.messages[0], claim.token, State.DEAD, "refused")
        await rig.store.messages.settle([dead], now)
        await rig.clock.advance(MINUTE)
    assert [rig.state(name) for name in ids("r", 1, 2)] == [State.DEAD, State.SCHEDULED]


async def test_a_moment_is_skipped_while_the_one_before_waits(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m", overlap="skip")
        await rig.clock.advance(2 * MINUTE + 1)
        assert rig.ids == ids("r", 1)
        assert await rig.deliver() == ids("r", 1)
        await rig.clock.advance(MINUTE)
    assert rig.ids == ids("r", 1, 3)
    shown = await rig.recurring.get("r")
    assert (shown.planted, shown.skipped) == (2, 1)
    assert rig.observer.counts["skipped", "default"] == 1


async def test_a_moment_replaces_the_one_before_that_waits(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m", overlap="replace")
        await rig.clock.advance(2 * MINUTE + 1)
    assert [rig.state(name) for name in ids("r", 1, 2)] == [State.CANCELLED, State.SCHEDULED]


async def test_a_rule_whose_route_is_gone_is_dead_and_hurts_no_other() -> None:
    rig = make_rig()
    anywhere = Recurring(rig.rules, rig.store, Intake(rig.store.messages, rig.observer), rig.plant)
    for rule_id, route in (("gone", "gone"), ("there", "default"), ("far", "elsewhere")):
        await anywhere.put(rule_id, rule_from({"every": "1m", "route": route}))
    async with running(rig.planter()):
        await rig.clock.advance(MINUTE)
    assert rig.ids == [*ids("far", 1), *ids("there", 1)]
    shown = await rig.recurring.get("gone")
    assert shown.state == "dead"
    assert shown.error == "route: nobody serves a route named 'gone'"


async def test_a_dead_rule_is_tried_again(rig: Rig) -> None:
    anywhere = Recurring(rig.rules, rig.store, Intake(rig.store.messages, rig.observer), rig.plant)
    await anywhere.put("r", rule_from({"every": "1m", "route": "gone"}))
    async with running(rig.planter()):
        await rig.clock.advance(MINUTE)
    await rig.put("r", every="1m", route="default")
    shown = await rig.recurring.get("r")
    assert (shown.state, shown.error) == ("active", None)
    async with running(rig.planter()):
        await rig.clock.advance(AGAIN_MS + MINUTE)
    assert rig.ids == ids("r", 1, 2), "both rules have the first moment"


async def test_a_dead_rule_that_gets_other_moments_makes_up_for_none(rig: Rig) -> None:
    anywhere = Recurring(rig.rules, rig.store, Intake(rig.store.messages, rig.observer), rig.plant)
    await anywhere.put("r", rule_from({"every": "1m", "route": "gone"}))
    async with running(rig.planter()):
        await rig.clock.advance(3 * MINUTE)
        await rig.put("r", every="2m")
        await rig.clock.advance(MINUTE)
    assert rig.ids == ids("r", 4)
    assert (await rig.recurring.get("r")).missed == 3


async def test_an_occurrence_that_cannot_be_stored_makes_its_rule_dead() -> None:
    rig = make_rig(max_message=200)

    async def put(messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        if any(len(message.payload) > 100 for message in messages):
            raise TooLarge("message: too large", field="payload")
        return rig.memory.book.put(messages, now)

    rig.memory.put = put  # type: ignore[method-assign]
    await rig.put("large", every="1m", payload="x" * 150)
    await rig.put("small", every="1m")
    async with running(rig.planter()):
        await rig.clock.advance(MINUTE)
    assert rig.ids == ids("small", 1)
    assert (await rig.recurring.get("large")).error == "message: too large"


async def test_nothing_is_lost_while_the_store_is_away(rig: Rig) -> None:
    whole = rig.rules.due

    async def away(now: int, limit: int) -> Any:
        raise StoreUnavailable("away")

    await rig.put("r", every="1m")
    rig.rules.due = away  # type: ignore[method-assign]
    async with running(rig.planter()):
        await rig.clock.advance(MINUTE + 30_000)
        assert rig.ids == []
        rig.rules.due = whole  # type: ignore[method-assign]
        await rig.clock.advance(1_000)
    assert rig.ids == ids("r", 1)


# --- what people ask for


async def test_a_put_tells_what_comes_next(rig: Rig) -> None:
    rule = rule_from({"cron": "0 9 * * mon-fri", "zone": "Europe/Berlin"})
    put, made = await rig.recurring.put("daily", rule)
    assert made
    assert put.words == "At 09:00, Monday to Friday (Europe/Berlin)"
    assert put.next[:3] == [
        "2026-11-19T08:00:00.000Z",
        "2026-11-20T08:00:00.000Z",
        "2026-11-23T08:00:00.000Z",
    ]
    assert len(put.next) == 5
    again, made = await rig.recurring.put("daily", rule)
    assert (again.version, made) == (1, False)


async def test_a_change_plants_what_the_rule_so_far_has_due(rig: Rig) -> None:
    await rig.put("r", every="1m", payload="old")
    rig.clock.jump(MINUTE)
    await rig.put("r", every="1m", payload="new")
    assert rig.ids == ids("r", 1)
    async with running(rig.planter()):
        await rig.clock.advance(MINUTE)
    payloads = [rig.memory.book.records[name].message.payload for name in ids("r", 1, 2)]
    assert payloads == [b'"old"', b'"new"']


async def test_a_change_of_another_version_is_refused(rig: Rig) -> None:
    await rig.put("r", every="1m")
    await rig.put("r", every="2m")
    with pytest.raises(VersionConflict, match="rule 'r' is at version 2"):
        await rig.recurring.put("r", rule_from({"every": "3m"}), version=1)
    with pytest.raises(VersionConflict):
        await rig.recurring.delete("r", version=1)
    await rig.recurring.put("r", rule_from({"every": "3m"}), version=2)
    await rig.recurring.delete("r", version=3)
    with pytest.raises(UnknownThing):
        await rig.recurring.get("r")


async def test_a_rule_for_a_route_that_is_not_there_is_refused(rig: Rig) -> None:
    with pytest.raises(UnknownRoute) as error:
        await rig.put("r", every="1m", route="nowhere")
    assert error.value.field == "route"
    with pytest.raises(InvalidMessage, match="id: must be"):
        await rig.put("a b", every="1m")


async def test_a_paused_rule_rests_until_it_is_resumed(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m")
        shown = await rig.recurring.pause("r", paused=True)
        assert (shown.state, len(shown.next)) == ("paused", 5), "what it would do if resumed now"
        await rig.clock.advance(5 * MINUTE)
        assert rig.ids == []
        await rig.recurring.pause("r", paused=False)
        await rig.clock.advance(MINUTE)
    assert rig.ids == ids("r", 6)


async def test_a_trigger_is_one_more_message_and_takes_no_moment(rig: Rig) -> None:
    await rig.put("r", every="1m", start="2026-11-18T12:01:00Z")
    rig.clock.jump(500)
    first = await rig.recurring.trigger("r")
    second = await rig.recurring.trigger("r")
    assert first == "r@2026-11-18T12:00:00Z"
    assert second == "r@2026-11-18T12:00:00.500Z"
    assert await rig.deliver() == sorted([first, second])
    rig.clock.jump(MINUTE)
    third = await rig.recurring.trigger("r")
    assert third == "r@2026-11-18T12:01:00.500Z", "12:01:00 is a moment of the rule"
    shown = await rig.recurring.get("r")
    assert [one.what for one in shown.last] == ["triggered"] * 3 if shown.last else False


async def test_a_backfill_plants_what_is_not_known(rig: Rig) -> None:
    await rig.put("r", every="1m")
    first, last = format_moment(NOON - 3 * MINUTE), format_moment(NOON)
    assert await rig.recurring.backfill("r", first, last) == 4
    assert await rig.recurring.backfill("r", first, last) == 0
    assert len(await rig.deliver()) == 4


async def test_what_is_backfilled_is_shown_among_the_latest(rig: Rig) -> None:
    await rig.put("r", every="1m")
    await rig.recurring.backfill("r", format_moment(NOON - 20 * MINUTE), format_moment(NOON))
    rig.clock.jump(500)
    triggered = await rig.recurring.trigger("r")
    shown = await rig.recurring.get("r")
    assert shown.last
    latest = [(triggered, "triggered", "scheduled")]
    latest += [(occurrence_id("r", NOON - n * MINUTE), "planted", "scheduled") for n in range(9)]
    assert [(one.id, one.what, one.state) for one in shown.last] == latest
    await rig.recurring.backfill(
        "r", format_moment(NOON - 40 * MINUTE), format_moment(NOON - 30 * MINUTE)
    )
    shown = await rig.recurring.get("r")
    assert [(one.id, one.what, one.state) for one in shown.last or ()] == latest, "older ones"
    assert (shown.planted, shown.version) == (0, 1)


async def test_a_missed_moment_that_is_backfilled_is_shown_as_planted(rig: Rig) -> None:
    await rig.put("r", every="1m", misfire="skip")
    rig.clock.jump(MINUTE + 30_000)
    async with running(rig.planter()):
        await rig.clock.advance(1)
    shown = await rig.recurring.get("r")
    assert [(one.id, one.what) for one in shown.last or ()] == [(None, "missed")]
    moment = format_moment(NOON + MINUTE)
    assert await rig.recurring.backfill("r", moment, moment) == 1
    shown = await rig.recurring.get("r")
    assert [(one.id, one.what) for one in shown.last or ()] == [(ids("r", 1)[0], "planted")]


async def test_what_became_of_the_last_moments_is_shown(rig: Rig) -> None:
    async with running(rig.planter()):
        await rig.put("r", every="1m")
        await rig.clock.advance(MINUTE + 250)
        await rig.deliver()
        await rig.clock.advance(MINUTE)
    shown = await rig.recurring.get("r")
    assert shown.last
    assert [(one.id, one.state, one.late) for one in shown.last] == [
        (ids("r", 2)[0], State.SCHEDULED, None),
        (ids("r", 1)[0], State.DELIVERED, 250),
    ]


async def test_lists_go_by_id(rig: Rig) -> None:
    for number in range(5):
        await rig.put(f"r{number}", every="1m")
    page = await rig.recurring.list(limit=3)
    assert [one.id for one in page.items] == ["r0", "r1", "r2"]
    page = await rig.recurring.list(page.next, limit=3)
    assert ([one.id for one in page.items], page.next) == (["r3", "r4"], None)


def test_a_preview_keeps_nothing(rig: Rig) -> None:
    preview = rig.recurring.preview(rule_from({"every": "1h"}))
    assert preview.next[0] == "2026-11-18T13:00:00.000Z"
    assert preview.words == "Every hour"


# --- rules of the settings


async def test_settings_are_reconciled_without_firing_twice(rig: Rig) -> None:
    rule = rule_from({"every": "1m"})
    async with running(rig.planter()):
        await rig.recurring.reconcile({"r": Configured(rule)})
        await rig.clock.advance(MINUTE)
        await rig.recurring.reconcile({"r": Configured(rule)})
        await rig.clock.advance(MINUTE)
    assert rig.ids == ids("r", 1, 2)
    assert (await rig.recurring.get("r")).version == 1


async def test_what_an_api_changed_stays_until_the_settings_change(rig: Rig) -> None:
    rule = rule_from({"every": "1m"})
    await rig.recurring.reconcile({"r": Configured(rule)})
    await rig.recurring.pause("r", paused=True)
    await rig.recurring.reconcile({"r": Configured(rule)})
    assert (await rig.recurring.get("r")).paused
    await rig.recurring.reconcile({"r": Configured(rule_from({"every": "2m"}))})
    assert not (await rig.recurring.get("r")).paused


async def test_a_rule_gone_from_the_settings_stays_unless_it_is_managed(rig: Rig) -> None:
    rule = rule_from({"every": "1m"})
    await rig.put("by-api", every="1m")
    await rig.recurring.reconcile(
        {"left": Configured(rule), "managed": Configured(rule, managed=True)}
    )
    await rig.recurring.reconcile({})
    page = await rig.recurring.list()
    assert [one.id for one in page.items] == ["by-api", "left"]


async def test_the_forecast_has_what_is_not_planted_yet(rig: Rig) -> None:
    await rig.put("often", every="1m")
    await rig.put("rarely", cron="30 13 * * *")
    forecast = Forecast(now=rig.clock.now())
    await rig.recurring.add_to(forecast)
    assert forecast.minutes[1] == {"default": 1}
    assert forecast.hours[1]["default"] == 61
    assert sum(hour["default"] for hour in forecast.hours) == 7 * 24 * 60 - 1 + 7


async def test_a_worker_that_stops_plants_nothing_while_it_finishes_its_sends(rig: Rig) -> None:
    sink = FakeSink(rig.clock)
    sink.gate = asyncio.Event()
    routes = {"default": (Route(name="default"), sink)}
    worker = Worker(rig.store, routes, rig.observer, shutdown=600_000, planter=rig.planter())
    await rig.put("r", every="1m")
    working = asyncio.create_task(worker.run())
    await rig.clock.advance(MINUTE)
    assert sink.ids == ids("r", 1)
    worker.stop()
    await rig.clock.advance(5 * MINUTE)
    assert not working.done()
    sink.gate.set()
    await rig.clock.advance(1_000)
    await working
    assert rig.ids == ids("r", 1)


async def test_a_rule_whose_route_is_gone_is_neither_triggered_nor_backfilled() -> None:
    rig, gone = make_rig(), make_rig(frozenset({"other"}))
    await rig.put("r", every="1m")
    (row,) = await rig.rules.rules(["r"])
    assert await gone.rules.swap([Swap("r", 0, row)]) == [True]
    with pytest.raises(UnknownRoute, match="default"):
        await gone.recurring.trigger("r")
    with pytest.raises(UnknownRoute, match="default"):
        await gone.recurring.backfill(
            "r", format_moment(NOON - 5 * MINUTE), format_moment(NOON - MINUTE)
        )
    assert gone.ids == []
