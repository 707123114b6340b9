"""FORECAST: from the index of waiting messages, or a sample of it.

A route's messages are spread over the shards by their ids' hash, so any shard is a fair sample. If
there are few messages, every shard is read, and the forecast is exact. If there are many, as few
shards are read as contain enough of them, and their counts are scaled up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import msgspec

from penstock.model.forecast import HOUR_MS, HOURS, MINUTE_MS, Forecast
from penstock.stores.dynamodb.items import OPEN, before, list_key, order, read_order
from penstock.stores.dynamodb.lookup import known_routes
from penstock.stores.dynamodb.search import leased_messages
from penstock.stores.dynamodb.session import Session
from penstock.stores.dynamodb.shared import shared
from penstock.stores.dynamodb.table import LIST, Range

SAMPLE = 20_000
"""Messages of a route after which no further shard is read …"""
SHARD_MOST = 20_000
"""… and most messages read of one shard, the nearest first; the rest is counted and spread."""
PAGES = 25
"""Pages of 1 MB counted per shard, as for figures."""


class _Shared(msgspec.Struct, array_like=True):
    """A forecast as stored in Redis."""

    now: int
    minutes: list[dict[str, int]]
    hours: list[dict[str, int]]
    later: dict[str, int]
    exact: bool


class _Tally(msgspec.Struct):
    """The counts of some shards of a route."""

    minutes: Counter[int] = msgspec.field(default_factory=Counter)
    """Messages by the start of the minute they are due in."""
    unread: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(the moment from which a shard was only counted, its number of messages up to the horizon)"""
    later: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Shared)


async def forecast(session: Session, now: int, serves: int) -> Forecast:
    """A forecast made in the last `serves` milliseconds, or a new one."""
    return await shared(
        session,
        "forecast",
        serves,
        lambda: _forecast(session, now),
        encode=_written,
        decode=_read_again,
    )


def _written(made: Forecast) -> bytes:
    return _encode(_Shared(made.now, [*made.minutes], [*made.hours], made.later, made.exact))


def _read_again(stored: bytes) -> Forecast:
    kept = _decoder.decode(stored)
    return Forecast(
        now=kept.now,
        minutes=[Counter(minute) for minute in kept.minutes],
        hours=[Counter(hour) for hour in kept.hours],
        later=Counter(kept.later),
        exact=kept.exact,
    )


async def _forecast(session: Session, now: int) -> Forecast:
    result = Forecast(now=now)
    in_flight = {message.id for message in await leased_messages(session)}
    for route in sorted(await known_routes(session)):
        await _add_route(session, route, in_flight, result)
    return result


async def _add_route(session: Session, route: str, in_flight: set[str], result: Forecast) -> None:
    shards = session.shape.shards
    horizon = result.first_hour + HOURS * HOUR_MS
    tally = _Tally()
    read = 0
    while read < shards and tally.minutes.total() < SAMPLE:
        group = range(read, min(shards, max(1, read * 2)))  # twice as many in every round
        keys = [list_key(OPEN, route, shard) for shard in group]
        await asyncio.gather(*(_read(session, key, horizon, in_flight, tally) for key in keys))
        read = group.stop

    def scaled(number: int) -> int:
        return round(number * shards / read)

    for minute, number in tally.minutes.items():
        result.add(route, minute, scaled(number))
    for start, number in tally.unread:
        result.spread(route, start, horizon, scaled(number))
    result.add(route, horizon, scaled(tally.later))
    result.exact = result.exact and read == shards


async def _read(
    session: Session, partition: str, horizon: int, in_flight: set[str], tally: _Tally
) -> None:
    """Add one shard to the tally."""
    until = before(horizon)
    near = Range(LIST, partition, before=until)
    last, seen = "", 0
    async for page in session.table.pages(near):
        orders = [item["o"]["S"] for item in page]
        tally.minutes.update(_minutes(orders, in_flight))
        seen += len(orders)
        last = orders[-1] if orders else last
        if seen >= SHARD_MOST:
            rest = await session.table.count(near._replace(after=last), PAGES)
            if rest:
                tally.unread.append((read_order(last)[0], rest))
            break
    beyond = Range(LIST, partition, after=order(horizon, ""))
    tally.later += await session.table.count(beyond, PAGES)


def _minutes(orders: Iterable[str], in_flight: set[str]) -> Iterable[int]:
    for one in orders:
        due, message_id = read_order(one)
        if message_id not in in_flight:
            yield due - due % MINUTE_MS
