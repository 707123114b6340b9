"""SWAP: change a message that was read, if it is still the one that was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.message import Message
from penstock.model.state import PURGEABLE, State
from penstock.redis_kit.runner import Group, Plan, raw
from penstock.redis_kit.scripts import Script
from penstock.redis_kit.wake import news_of
from penstock.stores.redis.keys import DEAD, PartitionKeys
from penstock.stores.redis.messages.buckets import bucket_entry, spot_for
from penstock.stores.redis.messages.line import line_entry
from penstock.stores.redis.messages.records import (
    NO_NONCE,
    NUMBERS,
    Held,
    as_away,
    ask_cancel,
    generation_of,
    head_length,
    is_away,
    pack,
)
from penstock.stores.redis.session import Session

_SWAP = Script("stores/redis/messages/swap.lua")


class Swap(NamedTuple):
    """A message as it was read, and as it is to be."""

    member: bytes
    held: Held
    before: Message
    after: Message | None
    """None: the message is removed."""
    events: bytes = b""


async def swap(session: Session, swaps: Sequence[Swap], now: int) -> list[bool]:
    """Whether each was done; False: another process changed the message since it was read.

    A swap whose answer was lost and that is repeated finds its own record and says so.
    """
    if not swaps:
        return []
    by_partition: dict[int, list[int]] = {}
    for i, one in enumerate(swaps):
        by_partition.setdefault(one.held.partition, []).append(i)
    records = [_record(session, one) for one in swaps]
    groups = [
        _group(session, [swaps[i] for i in wanted], [records[i] for i in wanted], now)
        for wanted in by_partition.values()
    ]
    replies = await session.runner.run(_SWAP, groups, [session.wakeups.channel])
    done = [False] * len(swaps)
    refused = []
    for (partition, wanted), reply in zip(by_partition.items(), replies, strict=True):
        if not reply:
            refused.append(partition)
            continue
        for i, answer in zip(wanted, reply, strict=True):
            done[i] = answer == 1
    if refused:
        await session.layout.renew(refused)
    await _recognize(session, swaps, records, done)
    for one, was_done in zip(swaps, done, strict=True):
        if was_done and one.after is not None and one.after.state is State.SCHEDULED:
            session.wakeups.tell(one.after.route, one.after.due)
    return done


async def _recognize(
    session: Session, swaps: Sequence[Swap], records: list[bytes], done: list[bool]
) -> None:
    unsure = [i for i, was_done in enumerate(done) if not was_done]
    if not unsure:
        return
    found = await session.find_here([swaps[i].before.id for i in unsure])
    for i, held in zip(unsure, found, strict=True):
        done[i] = (b"" if held is None else held.record) == records[i]


def _record(session: Session, one: Swap) -> bytes:
    own = one.after
    if own is None:
        return b""
    if own.state is State.LEASED:  # the record tells of the time before the claim
        own = one.before
    record = pack(
        own,
        generation=generation_of(one.held.record),
        edition=session.edition(),
        nonce=NO_NONCE,
        events=one.events,
    )
    return as_away(record) if is_away(one.held.record) else record


def _group(session: Session, swaps: list[Swap], records: list[bytes], now: int) -> Group:
    keys = session.layout.keys(swaps[0].held.partition)
    moves = _Moves(session, keys, now)
    entries: Plan = []
    for one in swaps:
        record = one.held.record
        head = record[: head_length(record)]
        commands, news = moves.of(one)
        lease = False if one.held.lease is None else raw(one.held.lease)
        entries.append([raw(one.member), raw(head), lease, commands, news])
    plan = [entries, session.layout.generation]
    return Group(swaps[0].held.partition, moves.used, plan, records)


class _Moves:
    """The commands that keep indexes and counters in step with a changed record."""

    def __init__(self, session: Session, keys: PartitionKeys, now: int) -> None:
        self._session = session
        self._keys = keys
        self._now = now
        self.used = [keys.records, keys.leases, keys.counters, keys.by_key, keys.generation]
        """The group's keys; commands name them by their place, from 1."""

    def of(self, one: Swap) -> tuple[list[Plan], str | bool]:
        """(commands, what to publish)."""
        before, after = one.before, one.after
        if after is None:
            return self._vanish(one), False
        if after.state is State.LEASED:
            return [["HSET", 2, raw(one.member), raw(ask_cancel(one.held.lease or b""))]], False
        if _spot(before) == _spot(after):
            return [], False
        commands = self._leave(one.member, before) + self._turns(one)
        if after.state is State.SCHEDULED:
            return commands + self._enter(one.member, after), news_of(after.route, after.due)
        commands.append(["HINCRBY", 3, str(NUMBERS[after.state]), 1])
        entry = (after.settled or self._now).to_bytes(6, "little") + one.member
        commands.append(["RPUSH", self._key(self._keys.settled), raw(entry)])
        return commands, False

    def _vanish(self, one: Swap) -> list[Plan]:
        """Its entry in the list of settled ids stays: purge holds it against the record."""
        before, record = one.before, one.held.record
        if before.state in PURGEABLE:
            commands: list[Plan] = [["HINCRBY", 3, str(NUMBERS[before.state]), -1]]
        else:
            commands = self._leave(one.member, before) + self._turns(one)
        commands.append(["HINCRBY", 3, f"g{generation_of(record)}", -1])
        if is_away(record):
            commands.append(["RPUSH", self._key(self._keys.unused), raw(one.member)])
        return commands

    def _turns(self, one: Swap) -> list[Plan]:
        """Out of its key's line and into it again, where its route keeps turns."""
        commands: list[Plan] = []
        for message, command in ((one.before, "ZREM"), (one.after, "ZADD")):
            if message is None or message.state is not State.SCHEDULED:
                continue
            if message.route not in self._session.layout.keyed:
                continue
            line, turns, _ = map(self._key, self._keys.turns(message.route))
            entry = raw(line_entry(message, one.member))
            leaves = command == "ZREM"
            commands.append([command, line, *(() if leaves else (0,)), entry])
            # What was held back by one that leaves may have its turn: the next claim looks.
            hint = 0 if leaves else message.due
            commands.append(["ZADD", turns, "LT", hint, message.key])
        return commands

    def _leave(self, member: bytes, before: Message) -> list[Plan]:
        if before.state is State.DEAD:
            dead = self._key(self._keys.dead(before.route))
            return [["ZREM", dead, raw(member)], ["HINCRBY", 3, f"{DEAD}{before.route}", -1]]
        # An entry in a bucket stays: it is held against the record when the bucket is opened.
        lane = spot_for(self._keys, before.route, before.priority, None)
        return [["ZREM", self._key(lane.key), raw(member)], ["HINCRBY", 3, lane.counter, -1]]

    def _enter(self, member: bytes, after: Message) -> list[Plan]:
        bucket = self._session.bucket_for(after.due, self._now)
        spot = spot_for(self._keys, after.route, after.priority, bucket)
        commands: list[Plan] = [["HINCRBY", 3, spot.counter, 1]]
        if bucket is None or spot.index_key is None:
            commands.append(["ZADD", self._key(spot.key), after.due, raw(member)])
            return commands
        entry = bucket_entry(bucket, after.due, member)
        commands.append(["RPUSH", self._key(spot.key), raw(entry)])
        commands.append(["ZADD", self._key(spot.index_key), "LT", after.due, spot.member])
        return commands

    def _key(self, key: bytes) -> int:
        self.used.append(key)
        return len(self.used)


def _spot(message: Message) -> tuple[State, str, str, int, int]:
    return message.state, message.route, message.key, message.priority, message.due
