"""The decision maker: what it publishes, and that only what the broker has counts."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import cycle, islice
from zoneinfo import ZoneInfo

import pytest

from penstock.contrib.sender.decision_batch import DECISION_BATCH
from penstock.contrib.sender.decisions import STAGE, DecisionMaker, Plan
from penstock.flow.observe import Observer
from penstock.limits.quiet import QuietHours
from penstock.model.draft import BlockedDraft, DeferredDraft, Draft
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.policy import Quiet
from penstock.sim.errors import Unreachable


class Broker:
    """Confirms, or answers as told."""

    name, max_batch, concurrency = "broker://", 500, 100

    def __init__(self, *answers: SendOutcome) -> None:
        self.answers = cycle(answers or (DELIVERED,))
        self.got: list[Message] = []

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        self.got += batch
        return list(islice(self.answers, len(batch)))

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def made(broker: Broker, **plan: object) -> DecisionMaker:
    options = {"rate": None, "items": 10, "count": 1_200, "each": True, **plan}
    maker = DecisionMaker(
        Plan(**options),  # type: ignore[arg-type] # by name
        broker,
        Observer(),
        chance=random.Random(7),
    )
    await maker.run()
    return maker


async def test_every_third_batch_is_deferred_and_some_are_blocked_or_dropped() -> None:
    broker = Broker()
    totals = (await made(broker)).totals
    verdicts = [json.loads(message.payload)["decision"] for message in broker.got]
    assert set(verdicts[2::3]) == {"DEFER"}
    assert "DEFER" not in verdicts[::3]
    assert Counter(verdicts) == {word: n // 10 for word, n in totals.verdicts.items()}
    assert set(totals.verdicts) == {"ALLOW", "BLOCK", "DEFER", "DROP"}
    assert (totals.batches, totals.items) == (120, 1_200)


@pytest.mark.parametrize("time_of_day", ["00:00", "12:00", "22:30", "23:45", "23:59"])
async def test_whatever_the_time_no_policy_of_the_example_holds_one_until_it_has_expired(
    time_of_day: str,
) -> None:
    now = int(datetime.fromisoformat(f"2026-11-19T{time_of_day}Z").timestamp())
    broker = Broker()
    plan = Plan(rate=None, items=10, count=100, each=True)
    maker = DecisionMaker(plan, broker, Observer(), chance=random.Random(7), now=lambda: now)
    totals = await maker.run()
    quiet = QuietHours(Quiet(from_="00:00", to="23:59"), ZoneInfo("UTC"))
    room = (now + 3_600) * 1000  # of a cap of three an hour
    goes = (quiet.ends(room) or room) + 60_000  # spread over the last minute of the day
    may_go = {one.id for one in totals.each or () if not one.expired}
    lives = [
        item["data"]["params"]["expireDate"] * 1000
        for message in broker.got
        for item in json.loads(message.payload)["notify_msg"]
        if item["id"] in may_go
    ]
    assert len(lives) == len(may_go) > 50
    assert min(lives) > goes


async def test_what_the_totals_say_of_each_is_what_the_format_reads() -> None:
    broker = Broker()
    totals = (await made(broker)).totals
    assert totals.each is not None
    decided = {one.id: one for one in totals.each}
    assert len(decided) == 1_200
    for message in broker.got:
        for draft in DECISION_BATCH.read(message.payload, None, message.due):
            assert isinstance(draft, Draft)
            one = decided.pop(str(draft.id))
            labels = draft.labels
            assert labels is not None
            assert [draft.key, *labels.keys] == one.receivers
            assert labels.class_ == one.type
            late = one.expired and one.verdict == "ALLOW"
            is_blocked = one.verdict in {"BLOCK", "DROP"} or late
            assert isinstance(draft, BlockedDraft) is is_blocked
            assert isinstance(draft, DeferredDraft) is (one.verdict == "DEFER")
    assert decided == {}
    assert 0 < totals.several < totals.items
    assert 0 < totals.expired < totals.items


async def test_batches_name_their_process_and_order() -> None:
    broker = Broker()
    await made(broker, count=30)
    said = [json.loads(message.payload) for message in broker.got]
    assert [(one["process"], one["order"]) for one in said] == [("sim", 1), ("sim", 2), ("sim", 3)]


async def test_what_was_not_confirmed_is_published_again_and_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.contrib.sender.decisions.AGAIN", 0)
    broker = Broker(DELIVERED, Retry("not now", unsure=True))
    maker = await made(broker, count=100)
    totals = maker.totals
    assert (totals.batches, totals.items, totals.unknown) == (10, 100, 0)
    assert totals.repeated == len(broker.got) - 10
    assert len({message.id for message in broker.got}) == 10
    assert maker._observer.total(STAGE) == 100


async def test_a_broker_that_refuses_for_good_ends_it() -> None:
    with pytest.raises(Unreachable, match="too large"):
        await made(Broker(Dead("too large")))
