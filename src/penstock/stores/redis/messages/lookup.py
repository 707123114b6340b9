"""FIND, GET, PURGE: read messages, and forget settled ones."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.message import Event, Message
from penstock.model.timeline import lines_of
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.pointers import drop_unused
from penstock.stores.redis.messages.records import pack_id, read, read_events, unpack
from penstock.stores.redis.session import Session

_PURGE = Script("stores/redis/messages/purge.lua")


async def find(session: Session, ids: Sequence[str]) -> list[Message | None]:
    found = await session.find(ids)
    return [
        None if held is None else unpack(pack_id(text), held)
        for text, held in zip(ids, found, strict=True)
    ]


async def get(session: Session, message_id: str) -> tuple[Message, list[Event]] | None:
    """The message and its timeline: common events are derived from the record's times, the others
    from its events.
    """
    (held,) = await session.find([message_id])
    if held is None:
        return None
    message, events = read(pack_id(message_id), held)
    return message, lines_of(message, read_events(events))


async def erasures(
    runner: Runner, prefix: str, add: Sequence[str], remove: Sequence[str]
) -> list[str]:
    """`<prefix>:erasing` SET of ids: as few as messages of a key in flight."""
    key = f"{prefix}:erasing".encode()
    if add:
        await runner.call("SADD", key, *add)
    if remove:
        await runner.call("SREM", key, *remove)
    return sorted(member.decode() for member in await runner.call("SMEMBERS", key))


async def purge(session: Session, now: int, limit: int) -> int:
    """Forget about `limit` messages past the time, or more than the count."""
    every = session.layout.all_keys()
    groups = [
        Group(keys.number, (keys.settled, keys.records, keys.counters, keys.by_key, keys.unused))
        for keys in every
    ]
    each = max(1, -(-limit // len(groups)))
    common = [now, session.retention, session.kept_each, each]
    forgotten = sum(await session.runner.run(_PURGE, groups, common))
    await drop_unused(session)
    if forgotten == 0:
        await session.layout.forget_older()
    return forgotten
