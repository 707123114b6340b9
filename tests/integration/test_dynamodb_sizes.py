"""DynamoDB keeps 400 KB of a message: one that is larger is refused, and no other pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.model.draft import BinaryDraft
from penstock.model.errors import PenstockError, PutRefused, TooLarge
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Action, Amendment, Receipt, Settlement
from penstock.model.patch import Patch
from penstock.model.state import State
from penstock.settings import given
from penstock.stores.dynamodb import TieredStore
from penstock.stores.dynamodb.items import MAX_CONTENT, MAX_EVENTS, Item
from penstock.wiring import Parts, open_parts
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

TABLE = "sizes"
HUGE = {f"x-{n}": "é" * 4_000 for n in range(60)}
"""480 kB of headers, each of which is in order."""


@pytest.fixture(scope="module")
def server(dynamodb_node: DynamoServer) -> Iterator[DynamoServer]:
    dynamodb_node.make_table(TABLE, shards=2)
    yield dynamodb_node
    dynamodb_node.empty(TABLE)


@pytest_asyncio.fixture
async def parts(server: DynamoServer, redis: RedisServer) -> AsyncIterator[Parts]:
    server.empty(TABLE)
    url = server.url(TABLE, f"redis://127.0.0.1:{redis.port}/0")
    async with open_parts(given(store=url)) as opened:
        yield opened


def new(message_id: str, now: int, payload: bytes = b"1", **more: object) -> NewMessage:
    fields = {"id": message_id, "route": "default", "key": message_id, "payload": payload}
    return NewMessage(**fields, due=now, **more)  # type: ignore[arg-type] # fields by name


def draft(name: str, **more: object) -> BinaryDraft:
    return BinaryDraft(id=name, body=b"1", **more)  # type: ignore[arg-type] # fields by name


async def found(parts: Parts, name: str) -> Message:
    (message,) = await parts.store.messages.find([name])
    assert message is not None
    return message


async def test_the_size_of_the_whole_message_is_checked_before_it_is_stored(parts: Parts) -> None:
    with pytest.raises(TooLarge) as caught:
        await parts.intake.schedule_one(draft("p", headers=HUGE))
    assert "480," in caught.value.message
    assert f"the store takes {MAX_CONTENT:,}" in caught.value.message
    assert await parts.store.messages.find(["p"]) == [None]


async def test_callers_beside_one_with_a_message_too_large_get_their_receipts(parts: Parts) -> None:
    outcomes = await asyncio.gather(
        *(parts.intake.schedule_one(draft(f"m-{n}")) for n in range(10)),
        parts.intake.schedule_one(draft("p", headers=HUGE)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Receipt] * 10 + [TooLarge]
    assert None not in await parts.store.messages.find([f"m-{n}" for n in range(10)])


async def test_a_put_keeps_all_but_the_one_that_is_too_large(parts: Parts) -> None:
    now = parts.store.clock.now()
    batch = [new(f"m-{n}", now) for n in range(50)]
    batch.insert(20, new("p", now, headers=HUGE))
    with pytest.raises(PutRefused) as caught:
        await parts.store.messages.put(batch, now)
    outcomes = caught.value.outcomes
    assert isinstance(outcomes[20], TooLarge)
    receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    assert [(r.id, r.duplicate) for r in receipts] == [(f"m-{n}", False) for n in range(50)]
    assert None not in await parts.store.messages.find([f"m-{n}" for n in range(50)])


@pytest.mark.parametrize("partiql", [True, False])
async def test_an_item_that_the_table_refuses_does_not_fail_those_beside_it(
    parts: Parts, partiql: bool
) -> None:
    assert isinstance(parts.store.messages, TieredStore)
    table = parts.store.messages._session.table  # no message that passed intake gets here
    table.partiql = partiql
    items: list[Item] = [
        {"pk": {"S": f"x:{n}"}, "n": {"N": "1"}, "p": {"B": b"1"}} for n in range(30)
    ]
    items[7]["p"] = {"B": b"x" * 420_000}
    answers = await table.insert(items)
    assert isinstance(answers[7], TooLarge)
    assert [answer for place, answer in enumerate(answers) if place != 7] == [True] * 29
    assert len(await table.get([f"x:{n}" for n in range(30)])) == 29


async def test_a_change_cannot_make_a_message_too_large(parts: Parts) -> None:
    await parts.intake.schedule_one(draft("a", headers=dict(list(HUGE.items())[:20]), delay=60))
    patch = Patch(payload_base64="eHh4" * 70_000)
    with pytest.raises(TooLarge):
        await parts.control.reschedule(parts.intake.change("a", patch))
    assert (await found(parts, "a")).payload == b"1"


async def test_the_timeline_of_the_largest_message_never_outgrows_its_item(parts: Parts) -> None:
    store, now = parts.store.messages, parts.store.clock.now()
    body = b"x" * (MAX_CONTENT - 200)
    await store.put([new("a", now, body)], now)
    for _ in range(MAX_EVENTS + 5):
        claim = await store.claim("default", 1, 60_000, store.clock.now())
        (message,) = claim.messages
        retry = Settlement(
            message, claim.token, State.SCHEDULED, "retry", due=now, error="é" * 1_000
        )
        assert await store.settle([retry], store.clock.now()) == [State.SCHEDULED]
    assert (await found(parts, "a")).payload == body
    await store.amend([Amendment(action=Action.CANCEL, id="a")], store.clock.now())


async def test_what_is_kept_for_inspection_is_cut_to_what_fits(parts: Parts) -> None:
    now = parts.store.clock.now()
    letter = new("dead:1", now, b"x" * 300_000, headers=HUGE, dead="cannot be read")
    (outcome,) = await parts.intake.keep_dead([letter])
    assert not isinstance(outcome, PenstockError)
    message = await found(parts, "dead:1")
    assert message.state is State.DEAD
    assert "of 300,000 bytes of the payload are kept" in str(message.last_error)
