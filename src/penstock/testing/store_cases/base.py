"""The base of every case: the store under test, and helpers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Action, Amended, Amendment, Claim, Receipt, Settlement
from penstock.model.query import Cursor, Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore, Store
from penstock.testing.store_harness import StoreHarness

FAR = 600_000
"""Milliseconds ahead that no test reaches."""
LEASE = 600_000
SHORT = 20
"""Milliseconds of a lease or wait that a test lets run out."""
AFTER_SHORT = 30

_numbers = count()


class StoreCases:
    """The base of all cases; a store author's subclass provides the `harness` fixture."""

    first_by_bytes: ClassVar[bool] = True
    """A claim ended by its bytes still returns the very first; False if servers share it out."""

    @pytest_asyncio.fixture
    async def opened(self, harness: StoreHarness) -> AsyncIterator[Store]:
        store = await harness.open()
        yield store
        await store.close()

    @pytest.fixture
    def store(self, opened: Store) -> MessageStore:
        return opened.messages


def new(message_id: str | None = None, *, due: int, **fields: Any) -> NewMessage:
    """A message to put; its id is new unless given."""
    if message_id is None:
        message_id = f"m-{next(_numbers):06d}"
    fields.setdefault("route", "r")
    fields.setdefault("key", message_id)
    fields.setdefault("payload", b'{"n":1}')
    return NewMessage(id=message_id, due=due, **fields)


async def put(store: MessageStore, *messages: NewMessage) -> list[Receipt]:
    return await store.put(messages, store.clock.now())


async def put_due(store: MessageStore, number: int = 1, **fields: Any) -> list[str]:
    """Put due messages; returns their ids."""
    now = store.clock.now()
    messages = [new(due=now, **fields) for _ in range(number)]
    await store.put(messages, now)
    return [message.id for message in messages]


async def claim(
    store: MessageStore, limit: int = 100, *, route: str = "r", lease: int = LEASE
) -> Claim:
    return await store.claim(route, limit, lease, store.clock.now())


async def claim_one(store: MessageStore, **fields: Any) -> tuple[Message, int]:
    """Put one due message and claim it."""
    lease = fields.pop("lease", LEASE)
    await put_due(store, 1, **fields)
    taken = await claim(store, 1, route=fields.get("route", "r"), lease=lease)
    (message,) = taken.messages
    return message, taken.token


def ending(
    message: Message, token: int, state: State = State.DELIVERED, **fields: Any
) -> Settlement:
    fields.setdefault("event", "retry" if state is State.SCHEDULED else state.value)
    return Settlement(message=message, token=token, state=state, **fields)


async def settle(store: MessageStore, *settlements: Settlement) -> list[State | None]:
    return await store.settle(settlements, store.clock.now())


async def amend(store: MessageStore, action: Action, message_id: str, **fields: Any) -> Amended:
    change = Amendment(action=action, id=message_id, **fields)
    (answer,) = await store.amend([change], store.clock.now())
    return answer


async def held(store: MessageStore, message_id: str) -> Message:
    (message,) = await store.find([message_id])
    assert message is not None, f"{message_id} is not held"
    return message


async def timeline(store: MessageStore, message_id: str) -> list[Event]:
    """The message's timeline; it must be known."""
    found = await store.get(message_id)
    assert found is not None, f"{message_id} is not held"
    return found[1]


async def words(store: MessageStore, message_id: str) -> list[str]:
    """The events of the message's timeline."""
    return [event.event for event in await timeline(store, message_id)]


async def listed(
    store: MessageStore, where: Filter, *, limit: int = 7, pages: int = 1_000
) -> list[Message]:
    """Everything the filter matches, page by page."""
    found: list[Message] = []
    cursor: Cursor | None = None
    for _ in range(pages):
        page = await store.search(where, cursor, limit)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


async def purge_all(store: MessageStore) -> int:
    """Purge until no more is purged."""
    total = 0
    for _ in range(1_000):
        purged = await store.purge(store.clock.now(), 50)
        if not purged:
            return total
        total += purged
    raise AssertionError("purging does not end")


async def eventually(harness: StoreHarness, condition: Callable[[], bool]) -> None:
    """Wait, in short steps, for an effect that may come through a server."""
    for _ in range(100):
        if condition():
            return
        await harness.pass_time(20)
    raise AssertionError("it did not happen")
