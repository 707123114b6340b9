"""FORECAST: read off the lengths of lanes and buckets, whatever is in them.

Lanes hold the near future in order: their minutes are counted. A bucket's entries are due between
its earliest due, which the index knows, and its end. Entries whose message has moved or left since
are hints and still counted there; then the forecast says that it is not exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.model.forecast import MINUTE_MS, Forecast
from penstock.redis_kit.runner import Group, Plan
from penstock.stores.redis.messages.buckets import parse_member
from penstock.stores.redis.search.figures import PEEK, Overview, overviews
from penstock.stores.redis.session import Session

BUCKETS = 1_000
"""Buckets of a route and partition looked at, the nearest first; what is behind is later."""


async def forecast(session: Session, now: int) -> Forecast:
    found = await overviews(session)
    result = Forecast(now=now)
    held: Counter[str] = Counter()
    for one in found:
        for (route, _), number in one.lanes.items():
            held[route] += number
    await _add_lanes(session, found, result)
    await _add_buckets(session, found, result)
    for route, number in held.items():
        told = sum(hour[route] for hour in result.hours) + result.later[route]
        if told != number:
            result.exact = False
            result.later[route] = max(0, result.later[route] + number - told)
    return result


async def _add_lanes(session: Session, found: Sequence[Overview], result: Forecast) -> None:
    edges = [
        result.first_minute + minute * MINUTE_MS
        for minute in range(1, session.widths.near // MINUTE_MS + 3)
    ]
    spans = list(zip(["-inf", *edges], [*(f"({edge}" for edge in edges), "+inf"], strict=True))
    groups: list[Group] = []
    for one in found:
        if one.lanes:
            plan: Plan = [
                ["ZCOUNT", place, start, end]
                for place in range(1, len(one.lanes) + 1)
                for start, end in spans
            ]
            keys = [one.keys.lane(route, priority) for route, priority in one.lanes]
            groups.append(Group(one.keys.number, keys, [plan]))
    replies = await session.runner.run(PEEK, groups, writes=False) if groups else []
    for one, reply in zip([one for one in found if one.lanes], replies, strict=True):
        for place, (route, _) in enumerate(one.lanes):
            numbers = reply[place * len(spans) : (place + 1) * len(spans)]
            for due, number in zip([result.now, *edges], numbers, strict=True):
                result.add(route, due, number)


async def _add_buckets(session: Session, found: Sequence[Overview], result: Forecast) -> None:
    for one in found:
        routes = sorted({route for route, _ in one.lanes})
        if not routes:
            continue
        plan: Plan = [
            ["ZRANGE", place, 0, BUCKETS - 1, "WITHSCORES"] for place in range(1, len(routes) + 1)
        ]
        group = Group(one.keys.number, [one.keys.index(route) for route in routes], [plan])
        listed = await session.runner.single(PEEK, group, writes=False)
        for route, members in zip(routes, listed, strict=True):
            await _add_route(session, one, route, members, result)


async def _add_route(
    session: Session, one: Overview, route: str, members: Sequence[bytes], result: Forecast
) -> None:
    buckets = [parse_member(member) for member in members[::2]]
    if not buckets:
        return
    keys = [one.keys.bucket(route, priority, b.width, b.start) for priority, b in buckets]
    plan: Plan = [["LLEN", place] for place in range(1, len(keys) + 1)]
    lengths = await session.runner.single(PEEK, Group(one.keys.number, keys, [plan]), writes=False)
    for (_, bucket), earliest, length in zip(buckets, members[1::2], lengths, strict=True):
        if length:
            result.spread(route, max(bucket.start, int(earliest)), bucket.end, length)
