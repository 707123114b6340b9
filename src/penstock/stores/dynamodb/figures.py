"""FIGURES: counts by state and route, made rarely and shared by all processes."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.state import State
from penstock.stores.dynamodb.items import OPEN, before, kind_of, list_key, read_order
from penstock.stores.dynamodb.lookup import known_routes
from penstock.stores.dynamodb.search import leased_messages
from penstock.stores.dynamodb.session import Session
from penstock.stores.dynamodb.shared import shared
from penstock.stores.dynamodb.table import LIST, Range

PAGES = 25
"""Pages of 1 MB counted per shard: with 64 shards some 13 million messages of a class."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(StoreFigures)
_ENDED = tuple(state for state in State if kind_of(state) != OPEN)


async def figures(session: Session, now: int, serves: int) -> StoreFigures:
    """A count made in the last `serves` milliseconds, or a new one."""
    return await shared(
        session,
        "figures",
        serves,
        lambda: _count(session, now),
        encode=_encode,
        decode=_decoder.decode,
    )


async def _count(session: Session, now: int) -> StoreFigures:
    in_flight = await leased_messages(session)
    leased = Counter(message.route for message in in_flight)
    ids = {message.id for message in in_flight}
    states = dict.fromkeys(State, 0)
    states[State.LEASED] = len(in_flight)
    routes: dict[str, RouteFigures] = {}
    for route in sorted(await known_routes(session) | leased.keys()):
        part, ended = await asyncio.gather(
            _open(session, route, now, leased[route], ids), _ended(session, route)
        )
        part.dead = ended[State.DEAD]
        for state, number in ended.items():
            states[state] += number
        states[State.SCHEDULED] += part.scheduled
        if part.scheduled or part.leased or part.dead:
            routes[route] = part
    return StoreFigures(routes=routes, states=states)


async def _open(
    session: Session, route: str, now: int, leased: int, in_flight: set[str]
) -> RouteFigures:
    shards = range(session.shape.shards)
    ranges = [Range(LIST, list_key(OPEN, route, shard)) for shard in shards]
    due = [asked._replace(before=before(now + 1)) for asked in ranges]
    numbers = await asyncio.gather(*(session.table.count(asked, PAGES) for asked in ranges))
    overdue = await asyncio.gather(*(session.table.count(asked, PAGES) for asked in due))
    heads = await asyncio.gather(*(_head(session, asked, in_flight) for asked in ranges))
    nexts = [head for head in heads if head is not None]
    return RouteFigures(
        scheduled=max(0, sum(numbers) - leased),
        overdue=max(0, sum(overdue) - leased),
        leased=leased,
        next_due=min(nexts, default=None),
    )


async def _head(session: Session, asked: Range, in_flight: set[str]) -> int | None:
    """The earliest due that is not in flight."""
    async for page in session.table.pages(asked, 20):
        for item in page:
            due, message_id = read_order(item["o"]["S"])
            if message_id not in in_flight:
                return due
    return None


async def _ended(session: Session, route: str) -> dict[State, int]:
    async def number(state: State) -> int:
        shards = range(session.shape.shards)
        ranges = [Range(LIST, list_key(state.value, route, shard)) for shard in shards]
        return sum(await asyncio.gather(*(session.table.count(one, PAGES) for one in ranges)))

    return dict(zip(_ENDED, await asyncio.gather(*map(number, _ENDED)), strict=True))
