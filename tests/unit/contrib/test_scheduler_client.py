"""What the simulated client of the scheduler service says of events whose answers were lost."""

from __future__ import annotations

import pytest

from penstock.contrib.scheduler_service import client as module
from penstock.contrib.scheduler_service.client import Client, Load, WayTotals
from penstock.contrib.scheduler_service.ids import Numbers
from penstock.contrib.scheduler_service.ways import Cancelled, Event, Scheduled, TryAgain
from penstock.contrib.ticks.consume import Subscription
from penstock.flow.observe import Observer


class Answers:
    """A way in that answers these in turn; None: no answer."""

    name = "a way"

    def __init__(self, *answers: Scheduled | None) -> None:
        self._answers = list(answers)

    async def schedule(self, event: Event) -> Scheduled:
        del event
        answer = self._answers.pop(0)
        if answer is None:
            raise TryAgain("no answer")
        return answer

    async def cancel(self, event_id: str) -> Cancelled:
        raise AssertionError(event_id)


async def outcome(way: Answers, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    records = Subscription(topic="schedule_events", group="g", config={})
    client = Client(Load(grpc="", records=records, topics=["orders.new"]), Observer())
    client.totals.ways = {way.name: WayTotals()}
    await client._one(1, way, way, way)
    ids = client._finished().ids
    sets = {name: list(Numbers.of_text(text)) for name, text in ids.items()}
    return {name: numbers for name, numbers in sets.items() if numbers}


async def test_a_refused_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await outcome(Answers(Scheduled.REFUSED), monkeypatch) == {"refused": [1]}


async def test_an_event_refused_after_a_lost_answer_may_have_been_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await outcome(Answers(None, Scheduled.REFUSED), monkeypatch) == {"unsure": [1]}


async def test_an_event_known_after_a_lost_answer_is_scheduled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await outcome(Answers(None, Scheduled.KNOWN), monkeypatch) == {"scheduled": [1]}
