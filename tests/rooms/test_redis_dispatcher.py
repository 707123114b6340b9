"""The Dispatcher's contract on Redis: its keys and streams, written and read by other programs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import jwt
import pytest

from penstock.model.errors import InvalidToken, StoreUnavailable, TokenUsed, UnknownThing
from penstock.model.room import RoomDraft, RoomState
from penstock.model.room_admission import RECORD_GRACE_MS
from penstock.model.ticket import EnterAnswer, Joining, TicketState
from penstock.rooms.parts import RoomParts
from penstock.settings import Settings
from penstock.stores.redis.rooms import keys as room_runner
from penstock.wiring import open_parts, open_rooms
from systems.servers.redis import RedisServer
from tests.rooms.redis_harness import KEY, eventually, rooms_on

pytestmark = pytest.mark.slow
GRACE = RECORD_GRACE_MS / 1000


@pytest.fixture(scope="module")
def running() -> Iterator[RedisServer]:
    with RedisServer("--appendfsync", "always", aof=True) as server:
        yield server


@pytest.fixture
def server(running: RedisServer) -> RedisServer:
    running.cli("FLUSHALL")
    return running


def stream(server: RedisServer, name: str) -> list[dict[str, str]]:
    """All entries as a redis-cli user sees them."""
    lines = server.cli("--json", "XRANGE", name, "-", "+")
    found = json.loads(lines) if lines else []
    return [
        dict(zip(fields[::2], fields[1::2], strict=True)) | {"id": name} for name, fields in found
    ]


def line_up(server: RedisServer, event: str, *users: str) -> None:
    """As a broker that writes the record first; the score is the place among these."""
    record = '{"instanceId":"node-7","joinedAt":1700000001}'
    for place, user in enumerate(users, 1):
        server.cli("HSET", f"WAITING_QUEUE_INDEX_RECORD:{event}", user, record)
        server.cli("HSET", f"WAITING_USER_IDS:{event}", user, "1")
        server.cli("ZADD", f"WAITING:{event}", str(place), user)


def orphans(server: RedisServer, event: str) -> tuple[int, int]:
    """Records and users that are left of people who do not wait."""
    hashes = ("WAITING_QUEUE_INDEX_RECORD", "WAITING_USER_IDS")
    records, users = (int(server.cli("HLEN", f"{name}:{event}")) for name in hashes)
    return records, users


async def test_a_queue_filled_by_redis_cli_alone_is_promoted_and_dispatched(
    server: RedisServer,
) -> None:
    server.cli("ZADD", "WAITING:concert", "1700000002", "bob", "1700000001", "alice")
    before = time.time()
    async with rooms_on(server.url):
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "2")
    entries = stream(server, "ENTRY")
    assert [(e["userId"], e["eventId"], e["instanceId"]) for e in entries] == [
        ("alice", "concert", "unknown"),
        ("bob", "concert", "unknown"),
    ]
    assert all(set(e) == {"userId", "eventId", "promotedAt", "instanceId", "id"} for e in entries)
    assert [e["promotedAt"] for e in entries] == ["1700000001", "1700000002"], "the score as text"
    moments = [int(e["id"].partition("-")[0]) / 1000 for e in entries]
    assert all(before + GRACE <= moment <= time.time() + 1 for moment in moments)
    dispatched = stream(server, "DISPATCH")
    assert [set(d) - {"id"} for d in dispatched] == [
        {"userId", "eventId", "instanceId", "entryToken"}
    ] * 2
    claims = jwt.decode(
        dispatched[0]["entryToken"], KEY.secret, algorithms=["HS256"], audience="concert"
    )
    assert (claims["sub"], claims["aud"], claims["iss"]) == ("alice", "concert", "penstock")
    assert {"jti", "iat", "nbf", "exp"} <= set(claims)
    assert server.cli("ZCARD", "WAITING:concert") == "0"
    assert server.cli("GET", "ENTRY_QUEUE_SLOTS:concert") == "2"
    assert server.cli("XPENDING", "ENTRY", "ENTRY_QUEUE").splitlines()[0] == "0"


async def test_the_record_of_a_broker_tells_the_instance(server: RedisServer) -> None:
    record = '{"instanceId":"node-7","joinedAt":1700000001}'
    server.cli("HSET", "WAITING_QUEUE_INDEX_RECORD:concert", "alice", record)
    server.cli("HSET", "WAITING_USER_IDS:concert", "alice", "1")
    server.cli("ZADD", "WAITING:concert", "1700000001", "alice")
    async with rooms_on(server.url):
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "1")
    assert stream(server, "DISPATCH")[0]["instanceId"] == "node-7"
    assert server.cli("HLEN", "WAITING_QUEUE_INDEX_RECORD:concert") == "0"
    assert server.cli("HLEN", "WAITING_USER_IDS:concert") == "0"


async def test_a_record_that_comes_after_the_member_is_waited_for(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False) as rooms:
        server.cli("ZADD", "WAITING:c", "1.5", "alice")
        assert await rooms.promoter.promote(["c"]) == 0
        server.cli("HSET", "WAITING_QUEUE_INDEX_RECORD:c", "alice", '{"instanceId":"node-7"}')
        assert await rooms.promoter.promote(["c"]) == 1
    (entry,) = stream(server, "ENTRY")
    assert (entry["instanceId"], entry["promotedAt"]) == ("node-7", "1.5")


async def test_a_member_without_a_record_holds_back_nobody_behind_it(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False, capacity=2) as rooms:
        server.cli("ZADD", "WAITING:c", "0", "bare")
        line_up(server, "c", "a", "b", "c")
        assert await rooms.promoter.promote(["c"]) == 2
        assert [entry["userId"] for entry in stream(server, "ENTRY")] == ["a", "b"]
        assert server.cli("ZRANGE", "WAITING:c", "0", "-1").split() == ["bare", "c"]


async def test_members_without_records_hold_back_no_other_lane(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False) as rooms:
        await rooms.operate.put("c", RoomDraft(capacity=3, lanes={"vip": 3}))
        server.cli("ZADD", "WAITING:c", "0", "bare")
        line_up(server, "c", "a")
        await rooms.join.join("c", "v", lane="vip")
        assert await rooms.promoter.promote(["c"]) == 2
        assert server.cli("ZRANGE", "WAITING:c", "0", "-1") == "bare"
        assert {entry["userId"] for entry in stream(server, "ENTRY")} == {"a", "v"}


async def test_a_full_room_does_not_wait_for_records_once_a_slot_is_free(
    server: RedisServer,
) -> None:
    async with rooms_on(server.url, run=False, capacity=1) as rooms:
        line_up(server, "c", "a")
        now = rooms.store.clock.now() - 2 * RECORD_GRACE_MS
        server.cli("ZADD", "WAITING:c", "5", "bare")
        await rooms.store.promote(["c"], now, 10)
        assert server.cli("GET", "ENTRY_QUEUE_SLOTS:c") == "1", "full, and bare is seen"
        server.cli("DECR", "ENTRY_QUEUE_SLOTS:c")
        (promotion,) = await rooms.store.promote(["c"], now + RECORD_GRACE_MS, 10)
        assert [ticket.user for ticket in promotion.admitted] == ["bare"]


async def test_records_that_come_too_late_are_removed_with_their_users(
    server: RedisServer,
) -> None:
    async with rooms_on(server.url):
        server.cli("ZADD", "WAITING:c", str(int(time.time())), "alice")
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "1")
        assert stream(server, "DISPATCH")[0]["instanceId"] == "unknown"
        joined = int(time.time()) - 2
        record = json.dumps({"instanceId": "node-7", "joinedAt": joined})
        server.cli("HSET", "WAITING_QUEUE_INDEX_RECORD:c", "alice", record)
        server.cli("HSET", "WAITING_USER_IDS:c", "alice", "1")
        await eventually(lambda: orphans(server, "c") == (0, 0))


async def test_a_user_noted_after_the_record_leaves_no_orphan(server: RedisServer) -> None:
    async with rooms_on(server.url):
        server.cli("ZADD", "WAITING:c", "1", "alice")
        server.cli("HSET", "WAITING_QUEUE_INDEX_RECORD:c", "alice", '{"instanceId":"node-7"}')
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "1")
        server.cli("HSET", "WAITING_USER_IDS:c", "alice", "1")
        await eventually(lambda: orphans(server, "c") == (0, 0))


async def test_the_record_of_a_next_visit_stays(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False, capacity=1) as rooms:
        server.cli("ZADD", "WAITING:c", "1", "alice")
        now = rooms.store.clock.now() - RECORD_GRACE_MS
        await rooms.store.promote(["c"], now, 10)
        await rooms.store.promote(["c"], now + RECORD_GRACE_MS, 10)
        assert server.cli("XLEN", "ENTRY") == "1"
        later = json.dumps({"instanceId": "node-8", "joinedAt": time.time() + 1})
        server.cli("HSET", "WAITING_QUEUE_INDEX_RECORD:c", "alice", later)
        await rooms.promoter.promote(["c"])
        assert orphans(server, "c") == (1, 0)


async def test_a_broker_that_takes_slots_back_lets_the_next_in(server: RedisServer) -> None:
    server.cli("ZADD", "WAITING:c", *[str(x) for n in range(5) for x in (n + 1, f"u{n}")])
    async with rooms_on(server.url, capacity=2):
        await eventually(lambda: server.cli("XLEN", "ENTRY") == "2")
        assert server.cli("GET", "ENTRY_QUEUE_SLOTS:c") == "2"
        server.cli("DECR", "ENTRY_QUEUE_SLOTS:c")
        await eventually(lambda: server.cli("XLEN", "ENTRY") == "3")
        server.cli("SET", "ENTRY_QUEUE_SLOTS:c", "-7")  # taken back too often: counts as none
        await eventually(lambda: server.cli("XLEN", "ENTRY") == "5")
        assert server.cli("GET", "ENTRY_QUEUE_SLOTS:c") == "2"


async def test_somebody_from_outside_can_enter_and_leave_like_everybody(
    server: RedisServer,
) -> None:
    server.cli("ZADD", "WAITING:c", "1", "alice")
    async with rooms_on(server.url) as rooms:
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "1")
        token = stream(server, "DISPATCH")[0]["entryToken"]
        assert (await rooms.enter.enter("c", token)).state is TicketState.ENTERED
        with pytest.raises(TokenUsed):
            await rooms.enter.enter("c", token)
        assert (await rooms.leave.leave("c", "alice")).state is TicketState.LEFT
        assert server.cli("GET", "ENTRY_QUEUE_SLOTS:c") == "0"


async def test_tickets_from_outside_expire_only_where_times_were_set(server: RedisServer) -> None:
    server.cli("ZADD", "WAITING:plain", "1", "alice")
    server.cli("ZADD", "WAITING:timed", "1", "alice")
    async with rooms_on(server.url) as rooms:
        await rooms.operate.put("timed", RoomDraft(capacity=1, claim_ttl="50ms"))
        await eventually(lambda: server.cli("XLEN", "ENTRY") == "2")
        await eventually(lambda: server.cli("GET", "ENTRY_QUEUE_SLOTS:timed") == "0")
        assert server.cli("GET", "ENTRY_QUEUE_SLOTS:plain") == "1"
        (held,) = (await rooms.store.look("plain", ["alice"], rooms.store.clock.now())).tickets  # type: ignore[union-attr]  # the room is there
        assert held is not None
        assert (held.state, held.until) == (TicketState.ADMITTED, None)


async def test_a_slot_that_a_broker_took_back_is_not_freed_twice(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False) as rooms:
        await rooms.operate.put("c", RoomDraft(capacity=2, claim_ttl="1h"))
        for user in ("a", "b", "c", "d"):
            await rooms.join.join("c", user)
        await rooms.promoter.promote(["c"])
        server.cli("DECR", "ENTRY_QUEUE_SLOTS:c")  # the broker saw "a" go
        await rooms.promoter.promote(["c"])
        assert server.cli("GET", "ENTRY_QUEUE_SLOTS:c") == "2"
        await rooms.leave.leave("c", "a")  # and now says so here, too
        assert await rooms.promoter.promote(["c"]) == 0
        await rooms.leave.leave("c", "b")
        assert await rooms.promoter.promote(["c"]) == 1


async def test_an_entry_left_by_a_dead_consumer_is_taken_over(server: RedisServer) -> None:
    line_up(server, "c", "alice")
    async with rooms_on(server.url, consumer="dead", run=False) as dead:
        await dead.promoter.promote(["c"])
        (entry,) = await dead.entries.take(10, 0)
        assert entry.user == "alice"
        assert dead.runner.errors == 0
    assert server.cli("XLEN", "DISPATCH") == "0"
    async with rooms_on(server.url, consumer="alive", abandoned=100) as alive:
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "1")
        assert alive.runner.errors == 0, "that the group was there already is no error"
    assert server.cli("XPENDING", "ENTRY", "ENTRY_QUEUE").splitlines()[0] == "0"


async def test_an_entry_finished_by_two_is_dispatched_once(server: RedisServer) -> None:
    line_up(server, "c", "alice")
    async with rooms_on(server.url, run=False) as rooms:
        await rooms.promoter.promote(["c"])
        taken = await rooms.entries.take(10, 0)
        assert await rooms.dispatcher.dispatch(taken) == 1
        assert await rooms.dispatcher.dispatch(taken) == 0
    assert server.cli("XLEN", "DISPATCH") == "1"


FINISH_ALL = """
while true do
  local taken = redis.call('XREADGROUP', 'GROUP', 'ENTRY_QUEUE', 'other', 'COUNT', 1000, 'STREAMS',
    'ENTRY', '>')
  if not taken then return end
  for _, entry in ipairs(taken[1][2]) do redis.call('XACK', 'ENTRY', 'ENTRY_QUEUE', entry[1]) end
end
"""
"""Another consumer takes and acknowledges what is left."""


async def test_streams_keep_what_is_not_acknowledged_and_a_hundred_thousand(
    server: RedisServer,
) -> None:
    script = "for i=1,130000 do redis.call('XADD','ENTRY',i..'-0','userId','u','eventId','c') end"
    server.cli("EVAL", script, "0")
    async with rooms_on(server.url, run=False) as rooms:
        taken = await rooms.entries.take(1000, 0)
        await rooms.dispatcher.dispatch(taken[500:])
        await rooms.entries.trim()
        assert server.cli("XLEN", "ENTRY") == "130000"
        await rooms.dispatcher.dispatch(taken[:500])
        server.cli("EVAL", FINISH_ALL, "0")
        await rooms.entries.trim()
        assert 100_000 <= int(server.cli("XLEN", "ENTRY")) <= 100_200


async def test_redis_killed_and_started_again_loses_no_user_and_no_slot(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = room_runner.PATIENCE._replace(first_open=0.3, longest_open=0.3)
    monkeypatch.setattr(room_runner, "PATIENCE", patience)
    async with rooms_on(server.url) as rooms:
        await rooms.operate.put("c", RoomDraft(capacity=3))
        for n in range(6):
            await rooms.join.join("c", f"u{n}")
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "3")
        server.kill()
        with pytest.raises(StoreUnavailable):
            await rooms.join.join("c", "late")
        server.start()
        async with asyncio.timeout(300):
            while True:  # a call that failed before the start may open the breaker once more
                with suppress(StoreUnavailable):
                    place = await rooms.wait.look("c", "u5")
                    break
                await asyncio.sleep(0.02)
        assert place.ahead == 2
        await rooms.leave.leave("c", "u0")
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "4")
        figures = await rooms.operate.get("c")
        assert (figures.in_use, figures.waiting) == (3, 2)


async def test_tokens_admit_once_and_only_where_and_while_they_are_good(
    server: RedisServer,
) -> None:
    async with rooms_on(server.url, run=False) as rooms:
        for name in ("a", "b"):
            await rooms.operate.put(name, RoomDraft(capacity=1))
            await rooms.join.join(name, "alice")
        await rooms.promoter.promote(["a", "b"])
        token = (await rooms.wait.look("a", "alice")).token
        assert token is not None
        for bad in (token[:-2] + "xx", "", "x.y.z", token.replace(".", "")):
            with pytest.raises(InvalidToken):
                await rooms.enter.enter("a", bad)
        with pytest.raises(InvalidToken):
            await rooms.enter.enter("b", token)
        with pytest.raises(InvalidToken):
            await rooms.enter.enter("a", jwt.encode({"sub": "alice"}, KEY.secret, "HS256"))
        forged = jwt.encode(jwt.decode(token, options={"verify_signature": False}), "y" * 32)
        with pytest.raises(InvalidToken):
            await rooms.enter.enter("a", forged)
        await rooms.enter.enter("a", token)
        with pytest.raises(TokenUsed):
            await rooms.enter.enter("a", token)
        await rooms.operate.reset("a")
        with pytest.raises(InvalidToken):
            await rooms.enter.enter("a", token)
        other = (await rooms.wait.look("b", "alice")).token
        await rooms.leave.leave("b", "alice")
        with pytest.raises(InvalidToken):
            await rooms.enter.enter("b", other or "")


async def test_many_promoters_at_once_never_let_in_too_many(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False) as one, rooms_on(server.url, run=False) as two:
        await one.operate.put("c", RoomDraft(capacity=50, wait_grace=None))
        await asyncio.gather(*(one.join.join("c", f"u{n}") for n in range(500)))
        parts = await asyncio.gather(
            *(rooms.promoter.promote(["c"]) for rooms in (one, two) for _ in range(10))
        )
        assert sum(parts) == 50
        admitted = [entry["userId"] for entry in stream(server, "ENTRY")]
        assert admitted == [f"u{n}" for n in range(50)]
        figures = await two.operate.get("c")
        assert (figures.in_use, figures.waiting, figures.joined) == (50, 450, 500)


async def test_a_room_nobody_made_is_not_there(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False) as rooms:
        with pytest.raises(UnknownThing):
            await rooms.join.join("nowhere", "alice")
        with pytest.raises(UnknownThing):
            await rooms.operate.set_state("nowhere", RoomState.PAUSED)
        assert server.cli("DBSIZE") == "0"


async def test_names_that_are_not_utf8_come_through(server: RedisServer) -> None:
    async with rooms_on(server.url, run=False) as rooms:
        await rooms.runner.call("HSET", "WAITING_QUEUE_INDEX_RECORD:c", b"\xff\xfe", "{}")
        await rooms.runner.call("ZADD", "WAITING:c", 1, b"\xff\xfe")
        await rooms.promoter.promote(["c"])
        await rooms.dispatcher.dispatch(await rooms.entries.take(10, 0))
        ((_, fields),) = await rooms.runner.call("XRANGE", "DISPATCH", "-", "+")
        assert fields[b"userId"] == b"\xff\xfe"


async def test_ten_thousand_join_enter_and_leave_in_one_call_each(server: RedisServer) -> None:
    users = [f"u{number}" for number in range(10_000)]
    async with rooms_on(server.url, run=False) as rooms:
        store = rooms.store
        await rooms.operate.put("c", RoomDraft(capacity=10_000))
        now = store.clock.now()
        joined = await store.join("c", [Joining(user) for user in users], now)
        assert joined is not None
        assert joined.answers[-1].ticket is not None
        assert joined.answers[-1].ticket.ahead == 9_999
        await rooms.promoter.promote(["c"])
        looked = await store.look("c", users, now)
        assert looked is not None
        passes = [(t.user, t.pass_id) for t in looked.tickets if t is not None]
        entered = await store.enter("c", passes, store.clock.now())
        assert entered is not None
        assert {one.answer for one in entered} == {EnterAnswer.ENTERED}
        left = await store.leave("c", users, store.clock.now())
        assert left is not None
        assert {ticket.state for ticket in left if ticket is not None} == {TicketState.LEFT}
        figures = await rooms.operate.get("c")
        assert (figures.left, figures.in_use, figures.promoted) == (10_000, 0, 10_000)


async def test_rooms_of_two_prefixes_share_nothing(server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        ours, theirs = [
            await stack.enter_async_context(_rooms_of(f"{server.url}?prefix={team}"))
            for team in ("team-a", "team-b")
        ]
        await ours.operate.put("sale", RoomDraft(capacity=1))
        await ours.join.join("sale", "u1")
        (promotion,) = await ours.store.promote(["sale"], ours.store.clock.now(), 10)
        assert len(promotion.admitted) == 1
        token = (await ours.wait.look("sale", "u1")).token
        assert token is not None
        assert await theirs.store.list_rooms("", 10) == []
        with pytest.raises(UnknownThing):
            await theirs.wait.look("sale", "u1")
        await theirs.operate.put("sale", RoomDraft(capacity=1))
        await theirs.join.join("sale", "u1")
        await theirs.store.promote(["sale"], theirs.store.clock.now(), 10)
        with pytest.raises(InvalidToken):
            await theirs.enter.enter("sale", token)
        assert (await ours.enter.enter("sale", token)).state is TicketState.ENTERED
    names = server.cli("KEYS", "*").splitlines()
    assert {name.partition(":")[0] for name in names} == {"team-a", "team-b"}


async def test_a_line_of_another_prefix_is_found_only_there(server: RedisServer) -> None:
    server.cli("ZADD", "team*a:WAITING:concert", "1700000001", "alice")
    server.cli("ZADD", "team-x-a:WAITING:concert", "1700000001", "bob")
    async with rooms_on(server.url), rooms_on(f"{server.url}?prefix=team%2Aa"):
        await eventually(lambda: server.cli("XLEN", "team*a:DISPATCH") == "1")
    assert server.cli("GET", "team*a:ENTRY_QUEUE_SLOTS:concert") == "1"
    assert server.cli("EXISTS", "DISPATCH") == "0"
    assert server.cli("ZCARD", "team-x-a:WAITING:concert") == "1"


@asynccontextmanager
async def _rooms_of(url: str) -> AsyncIterator[RoomParts]:
    """As a process with these settings has them, with the key that the store keeps."""
    async with open_parts(Settings(store=url)) as parts, open_rooms(parts) as rooms:
        assert rooms is not None
        yield rooms
