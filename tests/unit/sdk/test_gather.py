"""What is scheduled concurrently shares requests, and every caller gets the answer to its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec
import pytest

from penstock.model.draft import Draft
from penstock.model.errors import InvalidMessage, StoreUnavailable, Unreachable
from penstock.model.outcome import Receipt
from penstock.model.state import State
from penstock.sdk.async_gather import AsyncGather
from penstock.sdk.calls import NDJSON, Call, is_busy
from penstock.sdk.sync_gather import SyncGather
from penstock.sdk.transport import GATHERED, GATHERED_BYTES, HALVED, MOST_CALLS, Load


def draft(name: str) -> Draft:
    return Draft(id=name, payload=msgspec.Raw(b"1"))


def ids(call: Call[Any]) -> list[str]:
    """Which messages a call carries."""
    return [msgspec.json.decode(line)["id"] for line in (call.body or b"").splitlines()]


def answered(call: Call[Any], refused: frozenset[str] = frozenset()) -> Any:
    """What a server says: taken, but for those that it refuses for now."""
    lines: list[dict[str, object]] = []
    for name in ids(call):
        if call.content_type == NDJSON and name in refused:
            error = {"code": "store_unavailable", "message": "not now", "field": None}
            lines.append({"id": name, "error": error})
        else:
            due = "2030-01-01T00:00:00.000Z"
            lines.append({"id": name, "state": "scheduled", "due": due, "duplicate": False})
    return call.read(b"\n".join(msgspec.json.encode(line) for line in lines))


class Server:
    """Answers calls of a client with a loop, once `opened`."""

    def __init__(self, *, opened: bool = True, refuses: str = "") -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self._refuses = frozenset({refuses})
        if opened:
            self.open.set()

    async def __call__(self, call: Call[Any]) -> Any:
        self.calls.append(ids(call))
        await asyncio.sleep(0)
        await self.open.wait()
        return answered(call, self._refuses)


async def test_a_caller_alone_is_sent_alone() -> None:
    server = Server()
    gather = AsyncGather(server)
    for name in ("a", "b"):
        receipt = await gather.schedule(draft(name))
        assert (receipt.id, receipt.state) == (name, State.SCHEDULED)
    assert server.calls == [["a"], ["b"]]


async def test_tasks_of_one_turn_share_requests_in_their_order() -> None:
    server = Server()
    gather = AsyncGather(server)
    names = [f"m{i}" for i in range(40)]
    receipts = await asyncio.gather(*(gather.schedule(draft(name)) for name in names))
    assert [receipt.id for receipt in receipts] == names
    assert len(server.calls) <= 3
    assert list(chain(*server.calls)) == names


async def test_what_comes_while_calls_are_under_way_waits_for_one_to_end() -> None:
    server = Server(opened=False)
    gather = AsyncGather(server)
    tasks = []
    for i in range(MOST_CALLS + 10):
        tasks.append(asyncio.create_task(gather.schedule(draft(f"m{i}"))))
        for _ in range(4):  # one after another, each in turns of its own
            await asyncio.sleep(0)
    assert len(server.calls) <= MOST_CALLS
    server.open.set()
    receipts = await asyncio.gather(*tasks)
    assert [receipt.id for receipt in receipts] == [f"m{i}" for i in range(MOST_CALLS + 10)]


async def test_a_caller_that_leaves_before_its_call_begins_takes_its_message_back() -> None:
    server = Server()
    gather = AsyncGather(server)
    tasks = [asyncio.create_task(gather.schedule(draft(name))) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert tasks[1].cancelled()
    assert sorted(chain(*server.calls)) == ["a", "c"]


async def test_a_message_that_a_batch_refuses_for_now_is_asked_for_again_alone() -> None:
    server = Server(refuses="b")
    gather = AsyncGather(server)
    receipts = await asyncio.gather(*(gather.schedule(draft(name)) for name in "xabc"))
    assert [receipt.id for receipt in receipts] == list("xabc")
    assert server.calls[-1] == ["b"]


async def test_what_ends_a_request_is_raised_to_every_caller_of_it() -> None:
    async def away(call: Call[Any]) -> Any:
        await asyncio.sleep(0)
        raise Unreachable("away")

    gather = AsyncGather(away)
    asked = (gather.schedule(draft(name)) for name in "abc")
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in found] == [Unreachable] * 3


async def test_one_bad_message_is_raised_to_its_own_caller() -> None:
    async def picky(call: Call[Any]) -> Any:
        await asyncio.sleep(0)
        if call.content_type != NDJSON:
            return answered(call)
        outcomes = answered(call)
        return [InvalidMessage("key", "no") if one.id == "b" else one for one in outcomes]

    gather = AsyncGather(picky)
    asked = (gather.schedule(draft(name)) for name in "xabc")
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in found] == [Receipt, Receipt, InvalidMessage, Receipt]


class Threads:
    """Callers in threads of their own, against a server that answers once it is `open`."""

    def __init__(self, refuses: str = "") -> None:
        self.calls: list[list[str]] = []
        self.open = threading.Event()
        self.asked = threading.Event()
        self.found: dict[str, Receipt | Exception] = {}
        self._refuses = frozenset({refuses})
        self._running: list[threading.Thread] = []

    def __call__(self, call: Call[Any]) -> Any:
        self.calls.append(ids(call))
        self.asked.set()
        self.open.wait()
        return answered(call, self._refuses)

    def start(self, schedule: Callable[[Draft], Receipt], name: str) -> None:
        def ask() -> None:
            try:
                self.found[name] = schedule(draft(name))
            except Exception as exc:  # noqa: BLE001 - looked at by the test
                self.found[name] = exc

        thread = threading.Thread(target=ask)
        thread.start()
        self._running.append(thread)

    def join(self) -> None:
        for thread in self._running:
            thread.join()


def test_a_thread_alone_is_sent_alone() -> None:
    server = Threads()
    server.open.set()
    gather = SyncGather(server)
    assert [gather.schedule(draft(name)).id for name in "ab"] == ["a", "b"]
    assert server.calls == [["a"], ["b"]]


@pytest.mark.parametrize("refused", ["", "m20"])
def test_threads_share_requests_and_each_gets_its_own_answer(refused: str) -> None:
    server = Threads(refused)
    gather = SyncGather(server)
    names = [f"m{i}" for i in range(40)]
    for name in names:
        server.start(gather.schedule, name)
    server.asked.wait()
    server.open.set()
    server.join()
    assert {name: getattr(found, "id", found) for name, found in server.found.items()} == {
        name: name for name in names
    }
    assert sorted(set(chain(*server.calls))) == sorted(names)


def test_threads_that_come_while_all_calls_are_under_way_share_the_next() -> None:
    server = Threads()
    gather = SyncGather(server)
    for i in range(MOST_CALLS):
        server.asked.clear()
        server.start(gather.schedule, f"first{i}")
        server.asked.wait()
    later = [f"later{i}" for i in range(10)]
    for name in later:
        server.start(gather.schedule, name)
    while len(gather._waiting) < len(later):
        pass
    assert len(server.calls) == MOST_CALLS
    server.open.set()
    server.join()
    assert len(server.calls) < MOST_CALLS + len(later)
    assert all(isinstance(server.found[name], Receipt) for name in later)


def test_an_interrupted_leader_leaves_the_others_their_turn() -> None:
    class Interrupted(BaseException):
        pass

    server = Threads()
    held = threading.Event()
    server.open.set()

    def send(call: Call[Any]) -> Any:
        if call.content_type == NDJSON and not held.is_set():
            held.set()
            raise Interrupted
        if ids(call) == ["alone"]:
            server.asked.set()
            held.wait()
        return server(call)

    gather = SyncGather(send)
    server.start(gather.schedule, "alone")
    server.asked.wait()
    interrupted = []

    def ask(name: str) -> None:
        try:
            server.found[name] = gather.schedule(draft(name))
        except Interrupted:
            interrupted.append(name)

    gather._load._calls = MOST_CALLS  # nothing begins until all of them wait
    threads = [threading.Thread(target=ask, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    while len(gather._waiting) < 3:
        pass
    gather._load._calls = 1
    with gather._lock:
        gather._appoint(patient=False)
    for thread in threads:
        thread.join()
    server.join()
    assert len(interrupted) == 1
    assert {*server.found, *interrupted} == {"alone", "a", "b", "c"}
    assert all(isinstance(found, Receipt) for found in server.found.values())


class Line:
    def __init__(self, size: int = 1) -> None:
        self.line = b"x" * size


def test_a_large_group_becomes_two_calls_while_none_is_under_way() -> None:
    load = Load()
    group, rest = load.take([Line() for _ in range(HALVED)])
    assert (len(group), len(rest)) == (HALVED // 2, HALVED // 2)
    load.begin(len(group))
    assert load.may_begin(len(rest))
    assert len(load.take(rest)[0]) == len(rest)


def test_a_call_is_bounded_in_messages_and_bytes_but_takes_one_of_any_size() -> None:
    load = Load()
    assert len(load.take([Line() for _ in range(3 * GATHERED)])[0]) == GATHERED
    large = [Line(GATHERED_BYTES // 2) for _ in range(5)]
    assert len(load.take(large)[0]) == 2
    assert len(load.take([Line(GATHERED_BYTES * 2), Line()])[0]) == 1


def test_few_that_wait_beside_many_under_way_wait_for_more() -> None:
    load = Load()
    load.begin(60)
    assert not load.may_begin(10)
    assert load.may_begin(30)
    load.end(60)
    assert load.may_begin(1)
    assert not load.is_alone


def test_a_refusal_for_now_is_known_as_such() -> None:
    assert is_busy(StoreUnavailable("x"))
    assert not is_busy(InvalidMessage("key", "x"))
