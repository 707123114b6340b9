"""The far future on Redis: buckets opened in time, hints held against the record, long lists."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.model.identity import IdMaker
from penstock.model.message import NewMessage
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.query import Cursor, Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.redis import open_store
from penstock.stores.redis.search import search
from penstock.testing.clock import ManualClock
from penstock.testing.store_cases.base import listed
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LEASE = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    """Long ago, so that it can jump by days and still be behind the server."""
    return ManualClock(int(time.time()) * 1000 - 60 * DAY)


@pytest_asyncio.fixture
async def store(server: RedisServer, clock: ManualClock) -> AsyncIterator[MessageStore]:
    server.flush()
    store = (
        await open_store(
            server.url, total_partitions=4, retention=DAY, retention_count=100_000, clock=clock
        )
    ).messages
    yield store
    await store.close()


def new(name: str, due: int, **fields: int) -> NewMessage:
    return NewMessage(id=name, route="r", key=name, payload=b"1", due=due, **fields)  # type: ignore[arg-type]


async def claim_all(store: MessageStore, clock: ManualClock) -> list[str]:
    names: list[str] = []
    while (claim := await store.claim("r", 100, LEASE, clock.now())).messages:
        assert all(m.due <= clock.now() for m in claim.messages)
        names += [m.id for m in claim.messages]
    return names


async def test_messages_of_every_distance_leave_when_they_are_due_and_not_before(
    store: MessageStore, clock: ManualClock
) -> None:
    chance = random.Random(7)
    now = clock.now()
    dues = {f"m{n}": now + int(10 ** chance.uniform(3, 9.5)) for n in range(300)}
    await store.put([new(name, due, priority=due % 10) for name, due in dues.items()], now)
    gone: set[str] = set()
    while len(gone) < len(dues):
        claim = await store.claim("r", 1, LEASE, clock.now())
        if not claim.messages:
            assert claim.next_due is not None
            assert claim.next_due > clock.now()
            clock.jump(claim.next_due - clock.now())
            continue
        waiting = {name for name, due in dues.items() if due <= clock.now()} - gone
        assert claim.messages[0].id in waiting
        gone.add(claim.messages[0].id)


async def test_an_idle_worker_opens_buckets_before_they_are_due(
    store: MessageStore, clock: ManualClock, server: RedisServer
) -> None:
    now = clock.now()
    await store.put([new(f"m{n}", now + 10 * MINUTE + n) for n in range(50)], now)
    with server.client as client:
        assert not client.keys("*:q:*")
        clock.jump(9 * MINUTE)
        await store.claim("r", 10, LEASE, clock.now())
        assert client.keys("*:q:*")
        assert not client.keys("*:b:*")


async def test_a_moved_or_cancelled_message_leaves_only_by_its_record(
    store: MessageStore, clock: ManualClock
) -> None:
    now = clock.now()
    await store.put(
        [new(name, now + 2 * HOUR) for name in ("stays", "gone", "sooner", "later")], now
    )
    changes = [
        Amendment(action=Action.CANCEL, id="gone"),
        Amendment(action=Action.RESCHEDULE, id="sooner", due=now + HOUR),
        Amendment(action=Action.RESCHEDULE, id="later", due=now + 3 * DAY),
        Amendment(action=Action.RESCHEDULE, id="stays", due=now + DAY),
    ]
    assert {a.answer for a in await store.amend(changes, now)} == {Answer.DONE}
    back = [Amendment(action=Action.RESCHEDULE, id="stays", due=now + 2 * HOUR)]
    await store.amend(back, now)
    for jump, names in ((HOUR, ["sooner"]), (HOUR, ["stays"]), (DAY, []), (3 * DAY, ["later"])):
        clock.jump(jump)
        assert await claim_all(store, clock) == names
    figures = await store.figures(clock.now())
    assert figures.states[State.SCHEDULED] == 0
    assert figures.states[State.LEASED] == 3


async def test_figures_count_what_came_due_in_buckets_nobody_opened(
    store: MessageStore, clock: ManualClock
) -> None:
    now = clock.now()
    await store.put([new(f"m{n}", now + DAY + n) for n in range(30)], now)
    clock.jump(DAY + 9)
    part = (await store.figures(clock.now())).routes["r"]
    assert (part.scheduled, part.overdue, part.next_due) == (30, 10, now + DAY)


async def test_lists_go_through_near_and_far_in_order(
    store: MessageStore, clock: ManualClock
) -> None:
    chance = random.Random(3)
    ids = IdMaker(chance)
    now = clock.now()
    messages = [new(ids.make(now), now + int(10 ** chance.uniform(3, 9.5))) for _ in range(400)]
    messages += [new(ids.make(now), now + 5 * DAY) for _ in range(100)]
    await store.put(messages, now)
    found = await listed(store, Filter(state=State.SCHEDULED), limit=37)
    assert [(m.due, m.id) for m in found] == sorted((m.due, m.id) for m in messages)
    some = Filter(due_from=now + HOUR, due_to=now + 5 * DAY)
    wanted = [m.id for m in found if now + HOUR <= m.due < now + 5 * DAY]
    assert [m.id for m in await listed(store, some, limit=50)] == wanted


async def test_uuids_and_other_ids_never_meet(store: MessageStore, clock: ManualClock) -> None:
    uuid = "61616161-6161-7161-a161-616161616161"
    names = [uuid, uuid.upper(), "a" * 16, "a" * 17, "-" * 36, "-" * 80, "0" * 32]
    now = clock.now()
    receipts = await store.put([new(name, now) for name in names], now)
    assert not any(r.duplicate for r in receipts)
    assert [m and m.id for m in await store.find(names)] == names
    assert sorted(await claim_all(store, clock)) == sorted(names)


async def test_a_list_too_long_to_sort_is_gone_through_without_order(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    ids = [f"c{n:03}" for n in range(300)]
    await store.put([new(name, now + HOUR + n) for n, name in enumerate(ids)], now)
    await store.amend([Amendment(action=Action.CANCEL, id=name) for name in ids[:200]], now)
    monkeypatch.setattr(search, "EXACT", 50)
    for where, wanted in (
        (Filter(state=State.CANCELLED), ids[:200]),
        (Filter(), ids),
        (Filter(state=State.CANCELLED, due_to=now + HOUR + 20), ids[:20]),
        (Filter(key="c123"), ["c123"]),
    ):
        found = [m.id for m in await listed(store, where, limit=17)]
        assert sorted(found) == wanted
    page = await store.search(Filter(), Cursor(now + HOUR + 99, "c099"), 500)
    rest = [m.id for m in page.items]
    while page.next is not None:
        page = await store.search(Filter(), page.next, 500)
        rest += [m.id for m in page.items]
    assert sorted(rest) == ids[100:]


async def test_a_rare_key_is_found_with_short_pages(
    store: MessageStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    await store.put([new(f"m{n:04}", now + n) for n in range(3_000)], now)
    rare = NewMessage(id="zz", route="r", key="rare", payload=b"", due=now + 5_000)
    await store.put([rare], now)
    monkeypatch.setattr(search, "BUDGET", 500)
    found = await listed(store, Filter(key="rare"), limit=10)
    assert [m.id for m in found] == ["zz"]


async def test_a_debounced_message_leaves_once_at_its_last_due(
    store: MessageStore, clock: ManualClock
) -> None:
    now = clock.now()
    await store.put([new("x", now + HOUR)], now)
    for step in range(1, 30):
        change = Amendment(action=Action.RESCHEDULE, id="x", due=now + HOUR + step * 30_000)
        await store.amend([change], now)
    clock.jump(HOUR + 29 * 30_000 - 1)
    assert await claim_all(store, clock) == []
    clock.jump(1)
    assert await claim_all(store, clock) == ["x"]
