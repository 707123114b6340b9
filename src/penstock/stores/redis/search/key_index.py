"""The index by key: opt-in, kept by the scripts that write and forget records.

Whether a partition has one is told by the partition itself, so that every process keeps it in
step, whatever its own settings are. One that is asked for while messages are there is filled in
bounded steps by whoever has it in their settings; until it is complete in every partition (also
in those that came later) searches go the way they go without it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from penstock.model.errors import StoreUnavailable
from penstock.model.identity import is_id
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.records import pack_id
from penstock.stores.redis.search.figures import PEEK
from penstock.stores.redis.session import Session

_INDEX = Script("stores/redis/search/index.lua")

LOOKED_AT = 500
"""Records of a partition one step looks at, about."""
BREATH = 0.02
"""Seconds between two steps, so that the rest goes on."""
REST = 10.0
"""Seconds until it is looked whether there are new partitions."""
COMPLETE = b"\0\0c"

log = logging.getLogger("penstock.stores.redis")


class KeyIndex:
    """Fills it: again and again, because partitions may be added and servers forget."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._at: dict[int, tuple[bytes, bytes]] = {}
        """Partition → cursor and stamp of the step before; not there: it is complete."""

    async def step(self) -> bool:
        """One step in every partition that is not complete; whether all are."""
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
        """Fill it, and look after it; a store that is away is waited for."""
        while True:
            try:
                complete = await self.step()
            except StoreUnavailable as exc:
                log.debug("the index by key is not filled further now: %s", exc)
                complete = True
            await asyncio.sleep(REST if complete else BREATH)


async def drop(session: Session) -> None:
    """Search goes on without it."""
    for keys in session.layout.all_keys():
        await session.runner.call("UNLINK", keys.by_key, partition=keys.number)


async def listed_by_key(session: Session, key: str, most: int) -> dict[int, list[bytes]] | None:
    """Ids that may have this key, by partition.

    None: a partition has no complete index, or there are more than `most`.
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
    if is_id(key):  # a message that was given no key has its id for one
        for partition in session.candidates(key):
            listed[partition].append(pack_id(key))
    return listed if sum(map(len, listed.values())) <= most else None
