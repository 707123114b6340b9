"""SWAP: load messages, take a pure step of each, write those that have not changed since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.lifecycle import Record
from penstock.model.message import Event, Message
from penstock.model.state import PURGEABLE, State
from penstock.redis_kit.runner import Group, Plan, raw
from penstock.redis_kit.scripts import Script
from penstock.redis_kit.wake import news_of
from penstock.stores.redis.keys import DEAD, LEASED, PartitionKeys, bucket_entry, spot_for
from penstock.stores.redis.messages.line import line_entry
from penstock.stores.redis.messages.records import (
    NO_NONCE,
    NUMBERS,
    Held,
    add_events,
    as_away,
    ask_cancel,
    generation_of,
    head_length,
    is_away,
    pack,
    pack_event,
    read,
    read_events,
    token_of,
)
from penstock.stores.redis.session import Session

A = TypeVar("A")

_SWAP = Script("stores/redis/messages/swap.lua")

ROUNDS = 50
"""Times a message is loaded again because another process changed it in between."""


class Loaded(NamedTuple):
    """A message as it was loaded: the input of a step and the condition of a swap."""

    member: bytes
    held: Held
    record: Record
    events: bytes
    """The lines noted so far, packed; `record.noted` has them only of a dead message."""


class Swap(NamedTuple):
    """A message as it was loaded, and as it is to be."""

    loaded: Loaded
    after: Message | None
    """The new message; None: the message is removed."""
    noted: Sequence[Event] = ()
    """Lines to add to its timeline."""
    nonce: bytes = NO_NONCE
    """The nonce of the settlement that ends its lease."""
    over_by: int | None = None
    """Swap only if its lease has ended by then."""


def load(member: bytes, held: Held) -> Loaded:
    message, events = read(member, held)
    token = None if held.lease is None else token_of(held.lease)
    noted = tuple(read_events(events)) if message.state is State.DEAD else ()
    return Loaded(member, held, Record(message, token, noted), events)


Load: TypeAlias = Callable[[list[int]], Awaitable[Sequence[Held | PenstockError | None]]]
"""Loads the records of these indexes; None: there is none, an error: its partition did not
answer.
"""
Step: TypeAlias = Callable[[int, Held | None], tuple[A, Swap | None]]
"""The answer of one index, and the change that it takes; None: none."""


async def change(
    session: Session, ids: Sequence[str], load: Load, step: Step[A], now: int
) -> list[A | PenstockError]:
    """Load, step and swap; repeat where another process changed the message in between.

    A repeated id in one batch is done after its first. A message whose partition did not answer
    gets that error.
    """
    answers: dict[int, A | PenstockError] = {}
    left = list(range(len(ids)))
    for _ in range(ROUNDS + len(ids)):
        if not left:
            break
        turn, later = first_of_each(ids, left)
        swaps: dict[int, Swap] = {}
        for i, held in zip(turn, await load(turn), strict=True):
            if isinstance(held, PenstockError):
                answers[i] = held
                continue
            answers[i], changed = step(i, held)
            if changed is not None:
                swaps[i] = changed
        lost = []
        done = await try_swap(session, list(swaps.values()), now)
        for i, was_done in zip(swaps, done, strict=True):
            if isinstance(was_done, PenstockError):
                answers[i] = was_done
            elif not was_done:
                lost.append(i)
        left = sorted([*lost, *later])
    for i in left:
        text = f"gave up after {ROUNDS} concurrent updates of this message; retry"
        answers[i] = StoreUnavailable(text, retry_after=1.0)
    return [answers[i] for i in range(len(ids))]


def first_of_each(ids: Sequence[str], indexes: list[int]) -> tuple[list[int], list[int]]:
    """(the first index of every id, the later ones)."""
    if len({ids[i] for i in indexes}) == len(indexes):
        return indexes, []
    seen: set[str] = set()
    first: list[int] = []
    later: list[int] = []
    for i in indexes:
        (later if ids[i] in seen else first).append(i)
        seen.add(ids[i])
    return first, later


async def try_swap(session: Session, swaps: Sequence[Swap], now: int) -> list[bool | PenstockError]:
    """True for each swap done; False: another process changed the message since it was loaded."""
    by_partition: dict[int, list[int]] = {}
    for i, one in enumerate(swaps):
        by_partition.setdefault(one.loaded.held.partition, []).append(i)
    if not by_partition:
        return []
    groups = [
        _group(session, partition, [swaps[i] for i in indexes], now)
        for partition, indexes in by_partition.items()
    ]
    replies = await session.runner.try_run(_SWAP, groups, [session.wakeups.channel])
    done: list[bool | PenstockError] = [False] * len(swaps)
    refused = []
    for (partition, indexes), reply in zip(by_partition.items(), replies, strict=True):
        if not isinstance(reply, PenstockError) and not reply:
            refused.append(partition)
            continue
        for place, i in enumerate(indexes):
            done[i] = reply if isinstance(reply, PenstockError) else reply[place] == 1
    if refused:
        await session.layout.renew(refused)
    waiting = [one.after for one, was_done in zip(swaps, done, strict=True) if was_done is True]
    session.wakeups.tell_earliest([m for m in waiting if m and m.state is State.SCHEDULED])
    return done


def _group(session: Session, partition: int, swaps: list[Swap], now: int) -> Group:
    keys = session.layout.keys(partition)
    moves = _Moves(session, keys, now)
    entries = [moves.entry(one) for one in swaps]
    news = [news_of(route, due) for route, due in moves.earliest.items()]
    plan = [entries, news, session.layout.generation]
    return Group(partition, list(moves.used), plan, [_record(session, one) for one in swaps])


def _record(session: Session, one: Swap) -> bytes:
    """The new record, up to where the bytes that were loaded end."""
    loaded, own = one.loaded, one.after
    if own is None:
        return b""
    before = loaded.held.record
    if own.state is State.LEASED:  # the record is from before the claim
        own = read(loaded.member, loaded.held._replace(lease=None))[0]
    lines = [pack_event(e.at, e.event, e.detail, e.attempt) for e in one.noted]
    record = pack(
        own,
        generation=generation_of(before),
        edition=session.edition(),
        nonce=one.nonce,
        events=add_events(loaded.events, *lines) if lines else loaded.events,
    )
    return as_away(record) if is_away(before) else record


class _Moves:
    """The commands that keep leases, indexes and counters in step with changed records."""

    def __init__(self, session: Session, keys: PartitionKeys, now: int) -> None:
        self._session = session
        self._keys = keys
        self._now = now
        first = [
            keys.records,
            keys.leases,
            keys.tokens,
            keys.grants,
            keys.counters,
            keys.by_key,
            keys.generation,
        ]
        self.used = {key: place for place, key in enumerate(first, 1)}
        """The group's keys; commands name them by their place, from 1."""
        self.earliest: dict[str, int] = {}
        """Route → earliest due among messages that enter a lane."""

    def entry(self, one: Swap) -> Plan:
        """The arguments of swap.lua for one message."""
        held, after = one.loaded.held, one.after
        counts: Plan = []
        commands: list[Plan] = []
        lease: bytes | None = held.lease
        if after is None or after.state is not State.LEASED:
            lease = None
            self._move(one, counts, commands)
        elif lease is not None:
            lease = ask_cancel(lease)
        return [
            raw(one.loaded.member),
            raw(held.record[: head_length(held.record)]),
            False if held.lease is None else raw(held.lease),
            False if lease is None else raw(lease),
            False if one.over_by is None else one.over_by,
            len(held.record),
            counts,
            commands,
        ]

    def _move(self, one: Swap, counts: Plan, commands: list[Plan]) -> None:
        before, after, member = one.loaded.record.message, one.after, one.loaded.member
        if after is not None and _is_where(before, after):
            return
        self._leave(member, before, counts, commands)
        if before.route in self._session.layout.keyed:
            self._leave_turn(before, member, commands)
        if after is None:
            self._vanish(one, counts, commands)
            return
        if after.state is State.SCHEDULED:
            self._wait(member, after, counts, commands)
        elif after.state is State.DEAD:
            counts += (f"{DEAD}{after.route}", 1)
            dead = self._key(self._keys.dead(after.route))
            commands.append(["ZADD", dead, after.due, raw(member)])
        else:
            counts += (str(NUMBERS[after.state]), 1)
            entry = (after.settled or self._now).to_bytes(6, "little") + member
            commands.append(["RPUSH", self._key(self._keys.settled), raw(entry)])

    def _leave(self, member: bytes, before: Message, counts: Plan, commands: list[Plan]) -> None:
        state = before.state
        if state is State.LEASED:
            counts += (f"{LEASED}{before.route}", -1)
        elif state is State.DEAD:
            counts += (f"{DEAD}{before.route}", -1)
            commands.append(["ZREM", self._key(self._keys.dead(before.route)), raw(member)])
        elif state in PURGEABLE:
            # Its entry in the list of settled ids stays: purge holds it against the record.
            counts += (str(NUMBERS[state]), -1)
        else:
            # An entry in a bucket stays: it is compared with the record when the bucket is opened.
            lane = spot_for(self._keys, before.route, before.priority, None)
            counts += (lane.counter, -1)
            commands.append(["ZREM", self._key(lane.key), raw(member)])

    def _leave_turn(self, before: Message, member: bytes, commands: list[Plan]) -> None:
        """Out of its key's line, or no longer busy; the next claim looks whose turn it is then."""
        line, turns, busy = map(self._key, self._keys.turns(before.route))
        if before.state is State.SCHEDULED:
            commands.append(["ZREM", line, raw(line_entry(before, member))])
        elif before.state is State.LEASED:
            commands.append(["ZREM", busy, raw(before.key.encode() + b"\0" + member)])
        else:
            return
        commands.append(["ZADD", turns, "LT", 0, before.key])

    def _vanish(self, one: Swap, counts: Plan, commands: list[Plan]) -> None:
        record = one.loaded.held.record
        counts += (f"g{generation_of(record)}", -1)
        if is_away(record):
            commands.append(["RPUSH", self._key(self._keys.unused), raw(one.loaded.member)])

    def _wait(self, member: bytes, after: Message, counts: Plan, commands: list[Plan]) -> None:
        """Into its lane or bucket, and into its key's line where its route keeps turns."""
        bucket = self._session.bucket_for(after.due, self._now)
        spot = spot_for(self._keys, after.route, after.priority, bucket)
        counts += (spot.counter, 1)
        if bucket is None or spot.index_key is None:
            commands.append(["ZADD", self._key(spot.key), after.due, raw(member)])
            self.earliest[after.route] = min(after.due, self.earliest.get(after.route, after.due))
        else:
            entry = bucket_entry(bucket, after.due, member)
            commands.append(["RPUSH", self._key(spot.key), raw(entry)])
            commands.append(["ZADD", self._key(spot.index_key), "LT", after.due, spot.member])
        if after.route in self._session.layout.keyed:
            line, turns, _ = map(self._key, self._keys.turns(after.route))
            commands.append(["ZADD", line, 0, raw(line_entry(after, member))])
            commands.append(["ZADD", turns, "LT", after.due, after.key])

    def _key(self, key: bytes) -> int:
        return self.used.setdefault(key, len(self.used) + 1)


def _is_where(before: Message, after: Message) -> bool:
    """True if both are indexed at the same place."""
    return (
        before.state is after.state
        and before.due == after.due
        and before.priority == after.priority
        and before.route == after.route
        and before.key == after.key
    )
