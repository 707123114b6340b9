"""The index by key: opt-in, updated by the scripts that write and remove records.

Each partition records whether it has one, so that every process updates it, whatever its own
settings are. An index switched on over existing messages is filled in bounded steps by the
processes with that setting; until it is complete in every partition (later ones included) searches
do without it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from penstock.model.draft import is_id
from penstock.model.errors import StoreUnavailable
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.records import pack_id
from penstock.stores.redis.search.figures import PEEK
from penstock.stores.redis.session import Session

_INDEX = Script("stores/redis/search/index.lua")

LOOKED_AT = 500
"""Approximate records of a partition that one step reads."""
BREATH = 0.02
"""Seconds between two steps, so that other work continues."""
REST = 10.0
"""Seconds between checks for new partitions."""
COMPLETE = b"\0\0c"

log = logging.getLogger("penstock.stores.redis")


class KeyIndex:
    """Fills the index, repeatedly: partitions may be added, and servers may lose data."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._at: dict[int, tuple[bytes, bytes]] = {}
        """Partition → cursor and stamp of the last step; a complete partition has none."""

    async def step(self) -> bool:
        """Take one step in every incomplete partition; true if all are complete."""
        every = self._session.layout.all_keys()
        open_ = [keys for keys in every if keys.number in self._at] or every
        groups = []
        for keys in open_:
            cursor, stamp = self._at.get(keys.number, (b"0", b""))
            plan = [raw(cursor), raw(stamp)]
            groups.append(Group(keys.number, (keys.by_key, keys.records), plan))
        common: list[Argument] = [secrets.token_hex(4), LOOKED_AT]
        replies = await self._session.runner.run(_INDEX, groups, common)
        for keys, (cursor, stamp) in zip(open_, replies, strict=True):
            self._at.pop(keys.number, None)
            if cursor:
                self._at[keys.number] = cursor, stamp
        return not self._at

    async def keep(self) -> None:
        """Fill the index and keep it complete; wait while the store is unavailable."""
        while True:
            try:
                complete = await self.step()
            except StoreUnavailable as exc:
                log.debug("store away, the index by key is filled further when it answers: %s", exc)
                complete = True
            await asyncio.sleep(REST if complete else BREATH)


async def drop(session: Session) -> None:
    """Drop the index; searches continue without it."""
    for keys in session.layout.all_keys():
        await session.runner.call("UNLINK", keys.by_key, partition=keys.number)


async def listed_by_key(session: Session, key: str, most: int) -> dict[int, list[bytes]] | None:
    """Ids that may have this key, by partition.

    None if a partition has no complete index, or if there are more than `most`.
    """
    every = session.layout.all_keys()
    prefix = key.encode()
    first, last = raw(b"[" + prefix + b"\0"), raw(b"(" + prefix + b"\1")
    lookup = ["ZRANGE", 1, first, last, "BYLEX", "LIMIT", 0, most + 1]
    plan = [[["ZRANGE", 1, 0, 0], lookup]]
    groups = [Group(keys.number, (keys.by_key,), plan) for keys in every]
    replies = await session.runner.run(PEEK, groups, writes=False)
    listed: dict[int, list[bytes]] = {}
    for keys, (state, entries) in zip(every, replies, strict=True):
        if not state or not state[0].startswith(COMPLETE):
            return None
        listed[keys.number] = [entry[len(prefix) + 1 :] for entry in entries]
    if is_id(key):  # a message put without a key has its id as key
        for partition in session.candidates(key):
            listed[partition].append(pack_id(key))
    return listed if sum(map(len, listed.values())) <= most else None
