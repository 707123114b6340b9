"""The Dispatcher's contract on Redis: its keys and streams, written and read by other programs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import jwt
import pytest

from penstock.model.errors import InvalidToken, StoreUnavailable, TokenUsed, UnknownThing
from penstock.model.room import RoomDraft, RoomState
from penstock.model.ticket import EnterAnswer, Joining, TicketState
from penstock.stores.redis import rooms_link
from tests.rooms.redis_harness import KEY, eventually, rooms_on
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow


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


async def test_a_queue_filled_by_redis_cli_alone_is_promoted_and_dispatched(
    server: RedisServer,
) -> None:
    server.cli("ZADD", "WAITING:concert", "1700000002", "bob", "1700000001", "alice")
    before = int(time.time())
    async with rooms_on(server.url):
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "2")
    entries = stream(server, "ENTRY")
    assert [(e["userId"], e["eventId"], e["instanceId"]) for e in entries] == [
        ("alice", "concert", "unknown"),
        ("bob", "concert", "unknown"),
    ]
    assert all(set(e) == {"userId", "eventId", "promotedAt", "instanceId", "id"} for e in entries)
    assert all(before <= int(e["promotedAt"]) <= time.time() for e in entries)
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
    server.cli("ZADD", "WAITING:c", "1", "alice")
    async with rooms_on(server.url, consumer="dead", run=False) as dead:
        await dead.promoter.promote(["c"])
        (entry,) = await dead.entries.take(10, 0)
        assert entry.user == "alice"
        assert dead.link.errors == 0
    assert server.cli("XLEN", "DISPATCH") == "0"
    async with rooms_on(server.url, consumer="alive", abandoned=100) as alive:
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "1")
        assert alive.link.errors == 0, "that the group was there already is no error"
    assert server.cli("XPENDING", "ENTRY", "ENTRY_QUEUE").splitlines()[0] == "0"


async def test_an_entry_finished_by_two_is_dispatched_once(server: RedisServer) -> None:
    server.cli("ZADD", "WAITING:c", "1", "alice")
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
    monkeypatch.setattr(rooms_link, "OPEN_SECONDS", 0.3)
    async with rooms_on(server.url) as rooms:
        await rooms.operate.put("c", RoomDraft(capacity=3))
        for n in range(6):
            await rooms.join.join("c", f"u{n}")
        await eventually(lambda: server.cli("XLEN", "DISPATCH") == "3")
        server.kill()
        with pytest.raises(StoreUnavailable):
            await rooms.join.join("c", "late")
        server.start()
        await eventually(lambda: not rooms.link.is_open)
        assert (await rooms.wait.look("c", "u5")).ahead == 2
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
        await rooms.link.call("ZADD", "WAITING:c", 1, b"\xff\xfe")
        await rooms.promoter.promote(["c"])
        await rooms.dispatcher.dispatch(await rooms.entries.take(10, 0))
        ((_, fields),) = await rooms.link.call("XRANGE", "DISPATCH", "-", "+")
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
