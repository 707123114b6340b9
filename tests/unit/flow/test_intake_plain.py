"""The shortest way in: taken by a plain message alone, and by nobody else."""

from __future__ import annotations

import asyncio

import pytest

from penstock.flow.intake import LOOK_MS, Intake
from penstock.flow.observe import Observer
from penstock.model.errors import StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt
from penstock.sdk.asked import draft
from penstock.testing.clock import ManualClock
from penstock.testing.memory_store import MemoryStore

BODY = b'{"a":1}'


class PlainStore(MemoryStore):
    """Has that way, and may be told to refuse, to fail or to take its time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.plain: list[str] = []
        self.refuses = False
        self.fault: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def put_plain(
        self, route: str, message_id: str, payload: bytes, due: int, now: int
    ) -> Receipt | None:
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        if self.refuses:
            return None
        self.plain.append(message_id)
        (receipt,) = await self.put([NewMessage(message_id, route, message_id, payload, due)], now)
        return receipt


@pytest.fixture
def store() -> PlainStore:
    return PlainStore(ManualClock(1_000_000))


async def test_a_plain_message_alone_is_put_and_counted(store: PlainStore) -> None:
    observer = Observer()
    intake = Intake(store, observer)
    assert intake.is_idle
    for _ in range(2):
        receipt = await intake.schedule_plain(BODY, 1_000_500)
        assert receipt is not None
        (message,) = await store.find([receipt.id])
        assert message is not None
        assert (message.payload, message.due, message.key) == (BODY, 1_000_500, receipt.id)
    assert observer.total("accepted") == 2
    assert sum(observer.store["put"].buckets) == 2
    past = await intake.schedule_plain(BODY, 5)
    assert past is not None
    assert past.due == 1_000_000


async def test_what_listens_hears_of_it(store: PlainStore) -> None:
    observer, heard = Observer(), list[tuple[str, str, int]]()
    observer.listen(lambda *what: heard.append(what))
    await Intake(store, observer).schedule_plain(BODY, 1)
    assert heard == [("accepted", "default", 1)]


@pytest.mark.parametrize(
    "limits",
    [{"min_delay": 5}, {"max_delay": 5}, {"routes": frozenset({"push"})}, {"put": MemoryStore.put}],
    ids=["min_delay", "max_delay", "routes", "put"],
)
async def test_where_there_is_more_to_check_there_is_no_such_way(
    store: PlainStore, limits: dict[str, object]
) -> None:
    assert not Intake(store, Observer(), **limits).is_idle  # type: ignore[arg-type] # a test's shorthand
    assert not Intake(MemoryStore(ManualClock(0)), Observer()).is_idle


async def test_too_much_and_traced_messages_take_the_way_of_all_others(store: PlainStore) -> None:
    class Tracer:
        is_on = False

    observer = Observer()
    observer.tracer = Tracer()  # type: ignore[assignment] # nothing else of it is asked
    intake = Intake(store, observer, max_payload=len(BODY))
    assert await intake.schedule_plain(BODY, 1) is not None
    assert await intake.schedule_plain(BODY + b" ", 1) is None
    Tracer.is_on = True
    store.clock.jump(LOOK_MS)  # type: ignore[attr-defined] # it is a manual one
    assert await intake.schedule_plain(BODY, 1) is None
    assert len(store.plain) == 1


async def test_who_comes_meanwhile_goes_after_it_in_a_group(store: PlainStore) -> None:
    intake = Intake(store, Observer())
    store.gate = asyncio.Event()
    first = asyncio.create_task(intake.schedule_plain(BODY, 1))
    await asyncio.sleep(0)
    assert not intake.is_idle
    others = [asyncio.create_task(intake.schedule_one(draft(n, id=f"m{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    store.gate.set()
    assert [receipt.id for receipt in await asyncio.gather(*others)] == ["m0", "m1", "m2"]
    assert await first is not None
    await intake.drain()


async def test_what_the_store_refuses_is_not_counted(store: PlainStore) -> None:
    observer = Observer()
    store.refuses = True
    intake = Intake(store, observer)
    assert await intake.schedule_plain(BODY, 1) is None
    assert observer.total("accepted") == 0
    assert intake.is_idle


async def test_faults_are_told_as_on_the_other_way(
    store: PlainStore, caplog: pytest.LogCaptureFixture
) -> None:
    observer = Observer()
    intake = Intake(store, observer)
    store.fault = StoreUnavailable("gone fishing")
    with pytest.raises(StoreUnavailable, match="gone fishing"):
        await intake.schedule_plain(BODY, 1)
    assert observer.store["put"].errors == 1
    store.fault = RuntimeError("a secret detail")
    with pytest.raises(StoreUnavailable, match="see the server's log"):
        await intake.schedule_plain(BODY, 1)
    assert "a secret detail" in caplog.text
    assert intake.is_idle
