"""Days of a campaign in virtual time: every cap, the nights, the provider's pace, nobody lost."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.flow.conclude import committed, sent, unsent
from penstock.flow.decide import HOLD_MARGIN_MS, Decide
from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.limits.quiet import QuietHours
from penstock.model.message import Message
from penstock.model.outcome import Receipt, Settlement
from penstock.model.policy import Quiet, policy_from
from penstock.model.route import Route
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.sdk.asked import draft
from penstock.stores.redis import RedisStore
from penstock.stores.redis import open_store as open_redis
from penstock.stores.sqlite import SqliteStore, open_store
from penstock.testing.clock import ManualClock
from systems.servers.redis import RedisServer

HOUR = 3_600_000
CLOCKS_GO_BACK = 1_761_440_400_000  # 26 Oct 2025 in Europe
DAY = 24 * HOUR
ZONES = ["Asia/Seoul", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
HURRIED_TO = format_moment(CLOCKS_GO_BACK)
"""When the messages to every tenth person expire: two days on, too early for some of them."""
SPREAD = 5 * 60_000
RATE, BURST = 50, 10
GATHER_MS = 30_000
"""When nothing is due the clock jumps so far at least: what comes meanwhile is one batch."""
POLICIES: dict[str, dict[str, object]] = {
    "three-a-day": {"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"},
    "one-an-hour": {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h"},
    "nights": {"kind": "quiet", "from": "22:00", "to": "08:00"},
    "provider": {"kind": "pace", "rate": f"{RATE}/s", "burst": BURST},
}


class Campaign:
    """The stages between claim and settle; the clock jumps to whatever comes next."""

    def __init__(self, store: SqliteStore | RedisStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.policies = Policies(store.policies, clock)
        route = Route(name="default")
        self.decide = Decide(route, self.policies, Observer(), clock, lease=30_000)
        self.sends: list[tuple[int, Message]] = []
        self.blocked: list[Settlement] = []

    async def step(self) -> bool:
        """Release what may go now, or move on; False: nothing is left."""
        room = await self.decide.allowance(500)
        if room.number < BURST:  # what comes until the pace has room for so many is one batch
            self.clock.jump((BURST - room.number) * 1_000 // RATE)
            return True
        now = self.clock.now()
        claim = await self.store.claim("default", room.number, 30_000, now)
        if claim.messages:
            ready, refused, said, _ = await self.decide.decide(claim, now)
            self.sends += [(now, message) for message in ready]
            self.blocked += [one for one in refused if one.state is State.BLOCKED]
            delivered = [
                Settlement(
                    message=message,
                    token=claim.token,
                    state=State.DELIVERED,
                    event="delivered",
                    allowed=said[message.id],
                )
                for message in ready
            ]
            await self.settle([*delivered, *refused])
        elif claim.next_due is None:
            return False
        else:
            self.clock.jump(max(claim.next_due - now, GATHER_MS))
        return True

    async def settle(self, batch: list[Settlement]) -> None:
        now = self.clock.now()
        if isinstance(self.store, SqliteStore):
            states = await self.store.settle_counted(batch, sent(batch), now)
        else:
            await self.policies.conclude(committed(sent(batch)), now)
            states = await self.store.settle(batch, now)
        assert None not in states
        await self.policies.conclude(unsent(batch, states, HOLD_MARGIN_MS), now)


@pytest.mark.slow
async def test_ten_thousand_messages_to_a_thousand_people_obey_every_policy() -> None:
    await obeys_every_policy("sqlite://", 10_000, people=1_000)


@pytest.mark.slow
async def test_thousands_of_messages_on_redis_obey_every_policy() -> None:
    with RedisServer() as server:
        await obeys_every_policy(server.url, 3_000, people=300)


async def obeys_every_policy(url: str, number: int, *, people: int) -> None:
    """Two days before Europe's clocks go back. (A Redis holds every `now` against its own.)"""
    clock = ManualClock(CLOCKS_GO_BACK - 2 * DAY)
    driver = open_redis if url.startswith("redis") else open_store
    store = (
        await driver(
            url, total_partitions=2, retention=60 * DAY, retention_count=100_000, clock=clock
        )
    ).messages
    assert isinstance(store, SqliteStore | RedisStore)
    campaign = Campaign(store, clock)
    await campaign.policies.put({name: policy_from(p) for name, p in POLICIES.items()})
    chance = random.Random(7)
    intake = Intake(store, Observer())
    drafts = [
        draft(
            id=f"m{n}",
            key=f"user{n % people}",
            delay=chance.uniform(0, 6 * 3600),
            labels={"tz": ZONES[n % people % 4]},
            expires=HURRIED_TO if n % people % 10 == 0 else None,
        )
        for n in range(number)
    ]
    receipts = await intake.schedule(drafts)
    dues = {r.id: r.due for r in receipts if isinstance(r, Receipt)}
    steps = 0
    while await campaign.step():
        steps += 1
        assert steps < 500_000
    await store.close()
    check_nothing_lost(campaign, set(dues))
    assert len(dues) == number
    check_people(campaign, dues)
    check_provider([at for at, _ in campaign.sends])


def check_nothing_lost(campaign: Campaign, accepted: set[str]) -> None:
    """Everything was sent once, or blocked with its reason: only what could not go in time."""
    sent = [message.id for _, message in campaign.sends]
    blocked = [one.message.id for one in campaign.blocked]
    assert len(sent) + len(blocked) == len(accepted)
    assert {*sent, *blocked} == accepted
    assert blocked
    for one in campaign.blocked:
        assert one.message.expires is not None
        assert one.decided is not None
        assert one.decided.policy in POLICIES
        assert one.decided.detail.startswith("deadline: ")
        assert one.decided.detail.endswith(f"but expires at {format_moment(one.message.expires)}")


def check_people(campaign: Campaign, dues: dict[str, int]) -> None:
    hours = {zone: QuietHours(Quiet(from_="22:00", to="08:00"), ZoneInfo(zone)) for zone in ZONES}
    by_key: dict[str, list[tuple[int, Message]]] = defaultdict(list)
    for at, message in campaign.sends:
        by_key[message.key].append((at, message))
        assert at >= dues[message.id]
    for sends in by_key.values():
        labels = sends[0][1].labels
        assert labels is not None
        assert labels.tz is not None
        quiet = hours[labels.tz]
        times = [at for at, _ in sends]
        assert not any(quiet.ends(at) for at in times)
        assert all(later - earlier >= HOUR for earlier, later in pairwise(times))
        assert all(later - earlier >= DAY for earlier, later in zip(times, times[3:], strict=False))
        in_order = sorted(dues[message.id] for _, message in sends)
        for number, (at, due) in enumerate(zip(times, in_order, strict=True)):
            legal = next_slot(due, times[:number], quiet)
            # Each waits for the first legal slot, but for the spread of the morning and the pace;
            # a slot in the last minutes of an evening may be missed by that.
            late = legal + SPREAD
            assert legal <= at <= (late if at <= late else (quiet.ends(late) or 0) + SPREAD)


def next_slot(due: int, sent: list[int], quiet: QuietHours) -> int:
    """The first moment at which one more could go out, with nobody else around."""
    at = due
    if sent:
        at = max(at, sent[-1] + HOUR)
    if len(sent) >= 3:
        at = max(at, sent[-3] + DAY)
    return quiet.ends(at) or at


def check_provider(times: list[int]) -> None:
    """No second ever sees more than the burst and the rate."""
    for number, at in enumerate(times):
        in_second = bisect_left(times, at + 1000) - number
        assert in_second <= BURST + RATE
