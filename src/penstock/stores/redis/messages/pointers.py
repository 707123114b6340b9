"""POINTERS: in an id's own partition, where its message is when it lives with its key.

Messages of routes that keep turns are put into their key's partition, so that everything that
happens to a key is one atomic step there. Ids stay unique in the whole store because the id is
reserved first, in its own partition, by a pointer; a put that dies in between leaves a pointer to
nothing, which the same put again finds and finishes.

A reservation is good for a minute by the servers' clocks (put.lua); a pointer to nothing is
taken away only when its reservation is older than that by far, so nobody can be about to use it.
A pointer is a record of a state of its own, its version the partition it points to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.redis_kit.runner import Group
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.records import Held, pack_id, unpack_id
from penstock.stores.redis.session import Session

_RESERVE = Script("stores/redis/messages/reserve.lua")
_UNPOINT = Script("stores/redis/messages/unpoint.lua")

OVER_MS = 120_000
"""A reservation as old as this will not be used."""
STEP = 500
"""Pointers of one partition read in one purge."""


class Reserved(NamedTuple):
    """The result of reserving ids, by their index in the batch."""

    moments: dict[int, int]
    """Done, with the moment of each."""
    known: dict[int, Held]
    """Ids with a message in their own partition, or with a pointer to another one."""
    refused: dict[int, list[int]]
    """Ids by partition that belong to another generation of the layout."""


async def reserve(session: Session, wanted: dict[int, tuple[str, int]]) -> Reserved:
    """Point from the ids' own partitions to where (place → id, partition) they are to be."""
    layout = session.layout
    by_home: dict[int, list[int]] = {}
    for i, (message_id, _) in wanted.items():
        by_home.setdefault(layout.home(message_id), []).append(i)
    groups = []
    for home, places in by_home.items():
        keys = layout.keys(home)
        used = (keys.generation, keys.records, keys.leases, keys.counters)
        arguments = _pairs(wanted[i] for i in places)
        groups.append(Group(home, used, [layout.generation, len(places)], arguments))
    done = Reserved({}, {}, {})
    replies = await session.runner.run(_RESERVE, groups) if groups else []
    for (home, places), reply in zip(by_home.items(), replies, strict=True):
        if reply[0] == b"layout":
            done.refused[home] = places
            continue
        _, moment, records, leases = reply
        for i, record, lease in zip(places, records, leases, strict=True):
            if record is None:
                done.moments[i] = moment
            else:
                done.known[i] = Held(home, record, lease)
    return done


async def unpoint(session: Session, pointers: Sequence[tuple[str, int]]) -> list[bool]:
    """Remove pointers (id, partition) to nothing, except those that may still be used."""
    by_home: dict[int, list[int]] = {}
    for i, (message_id, _) in enumerate(pointers):
        for home in session.candidates(message_id):
            by_home.setdefault(home, []).append(i)
    groups = []
    for home, places in by_home.items():
        keys = session.layout.keys(home)
        arguments = _pairs(pointers[i] for i in places)
        groups.append(Group(home, (keys.records, keys.counters), [len(places)], arguments))
    gone = [True] * len(pointers)
    replies = await session.runner.run(_UNPOINT, groups, [OVER_MS]) if groups else []
    for places, reply in zip(by_home.values(), replies, strict=True):
        for i, answer in zip(places, reply, strict=True):
            gone[i] = gone[i] and answer == 1
    return gone


def _pairs(pointers: Iterable[tuple[str, int]]) -> list[bytes]:
    return [part for text, target in pointers for part in (pack_id(text), b"%d" % target)]


async def drop_unused(session: Session) -> None:
    """Remove pointers to forgotten messages, a few per partition.

    A crash in between leaves pointers to nothing: they cost a few bytes and do no harm.
    """
    if not session.layout.keyed:
        return
    for keys in session.layout.all_keys():
        members = await session.runner.call("LPOP", keys.unused, STEP, partition=keys.number)
        if not members:
            continue
        ids = [unpack_id(member) for member in members]
        found = await session.look({keys.number: list(range(len(ids)))}, ids)
        pointers = [(one, keys.number) for one, held in zip(ids, found, strict=True) if not held]
        gone = await unpoint(session, pointers)
        left = [pack_id(text) for (text, _), done in zip(pointers, gone, strict=True) if not done]
        if left:
            await session.runner.call("RPUSH", keys.unused, *left, partition=keys.number)
