"""What the script is told to put, partition by partition.

Many go in one argument, one after the other with their lengths beside: an argument for each would
cost more than all the rest of packing, here and in the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from penstock.model.message import Message, NewMessage
from penstock.model.state import State
from penstock.redis_kit.runner import Group, Plan
from penstock.redis_kit.wake import news_of
from penstock.stores.redis.keys import DEAD, PartitionKeys
from penstock.stores.redis.messages.away import as_away
from penstock.stores.redis.messages.buckets import Bucket, offsets, spot_for
from penstock.stores.redis.messages.ids import joined_ids
from penstock.stores.redis.messages.records import NO_NONCE, NUMBERS, NewPacker, pack
from penstock.stores.redis.session import Session

DUE = b"%015d"
"""A due time among others: all are equally long."""


class PutGroups:
    """Packs messages on their way into the store."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[NewMessage],
        now: int,
        moments: Mapping[int, int],
    ) -> None:
        """`moments`: when the ids of those that live with their keys were reserved."""
        self._session = session
        self._messages = messages
        self._now = now
        self._moments = moments
        self._edition = session.edition()
        self.records: dict[int, list[bytes]] = {}
        """What was packed last for each partition, in the order of its arguments."""

    def of(self, partition: int, wanted: list[int], generation: int) -> Group:
        """One partition's part; `wanted` is put into the order of its arguments."""
        keys = self._session.layout.keys(partition)
        steps = self._session.widths.steps(self._now)
        spots, ended = by_place(self._messages, wanted, steps)
        ended.sort(key=lambda i: _place_of_ended(self._messages[i]))
        wanted[:] = [*chain.from_iterable(spots.values()), *ended]
        part = _Part(keys, self._now, generation, self._edition)
        for (route, priority, bucket), places in spots.items():
            messages = [self._messages[i] for i in places]
            keyed = route in self._session.layout.keyed
            part.add(route, priority, bucket, messages, keyed, self._session.wakeups.channel)
        for _, alike in groupby(ended, key=lambda i: _place_of_ended(self._messages[i])):
            part.add_ended([self._messages[i] for i in alike])
        reserved: int | bool = False
        if self._moments:
            reserved = min((self._moments[i] for i in wanted if i in self._moments), default=False)
            part.records = [
                as_away(record) if i in self._moments else record
                for i, record in zip(wanted, part.records, strict=True)
            ]
        self.records[partition] = part.records
        members, lengths = joined_ids([self._messages[i].id for i in wanted])
        return part.group(members, lengths, reserved)


def by_place(
    messages: Sequence[NewMessage], wanted: Sequence[int], steps: Sequence[tuple[int, int]]
) -> tuple[dict[tuple[str, int, Bucket | None], list[int]], list[int]]:
    """(those of each place they are indexed at, those that come settled).

    `steps` are those of Widths. Most go where the one before them went: then nothing is looked up.
    """
    spots: dict[tuple[str, int, int, int], list[int]] = {}
    ended: list[int] = []
    places: list[int] = []
    route, priority, low, high = "", 0, 0, 0
    for i in wanted:
        message = messages[i]
        due = message.due
        if message.blocked is not None or message.dead is not None:
            ended.append(i)
            continue
        if low <= due < high and message.route == route and message.priority == priority:
            places.append(i)
            continue
        low = 0
        for high, width in steps:  # noqa: B007 - used after: a call for each would cost more
            if due < high:
                break
            low = high
        start = due - due % width if width else 0
        if width:
            low, high = max(low, start), min(high, start + width)
        route, priority = message.route, message.priority
        places = spots.setdefault((route, priority, width, start), [])
        places.append(i)
    return {
        (route, priority, Bucket(width, start) if width else None): places
        for (route, priority, width, start), places in spots.items()
    }, ended


def _place_of_ended(message: NewMessage) -> tuple[bool, str]:
    """What those have in common that one plan puts: the blocked of all routes, the dead of one."""
    return (True, message.route) if message.dead is not None else (False, "")


class _Part:
    """What one partition is told."""

    def __init__(self, keys: PartitionKeys, now: int, generation: int, edition: int) -> None:
        self._keys = keys
        self._now = now
        self._generation = generation
        self._edition = edition
        self._used = [keys.generation, keys.records, keys.leases, keys.counters, keys.by_key]
        self._lanes: list[Plan] = []
        self._dues: list[bytes] = []
        """Of each lane."""
        self._buckets: list[Plan] = []
        self._begins: list[bytes] = []
        """What the entries of each bucket begin with."""
        self.records: list[bytes] = []

    def add(
        self,
        route: str,
        priority: int,
        bucket: Bucket | None,
        messages: list[NewMessage],
        keyed: bool,
        channel: str,
    ) -> None:
        """Those of one lane or bucket; `keyed`: their route keeps turns."""
        spot = spot_for(self._keys, route, priority, bucket)
        dues = [message.due for message in messages]
        earliest = min(dues)
        packer = NewPacker(
            route, priority, now=self._now, generation=self._generation, edition=self._edition
        )
        place = self._place(spot.key, packer.pack(messages), spot.counter)
        place.append(self._turns(route) if keyed else False)
        if bucket is None or spot.index_key is None:
            self._lanes.append([*place, channel, news_of(route, earliest), earliest])
            self._dues.append(DUE * len(dues) % tuple(dues))
        else:
            self._used.append(spot.index_key)
            self._buckets.append([*place, len(self._used), spot.member, earliest])
            self._begins.append(offsets(bucket, dues))

    def add_ended(self, messages: list[NewMessage]) -> None:
        """Those of one `_place_of_ended`: they are settled as they are put."""
        records = [self._pack_ended(message) for message in messages]
        first = messages[0]
        if first.dead is not None:
            place = self._place(self._keys.dead(first.route), records, f"{DEAD}{first.route}")
            self._lanes.append([*place, False, False, "", 0])
            self._dues.append(b"".join(DUE % message.due for message in messages))
            return
        place = self._place(self._keys.settled, records, str(NUMBERS[State.BLOCKED]))
        self._buckets.append([*place, False, False, "", 0])
        self._begins.append(self._now.to_bytes(6, "little") * len(messages))

    def group(self, members: bytes, lengths: int | list[int], reserved: int | bool) -> Group:
        """All of it; `reserved`: when the first of its ids was, elsewhere."""
        number, records = len(self.records), self.records
        about = [self._generation, number, lengths, [*map(len, records)]]
        plan = [*about, self._lanes, self._buckets, reserved]
        arguments = [members, b"".join(records), *self._dues, *self._begins]
        return Group(self._keys.number, self._used, plan, arguments)

    def _place(self, key: bytes, records: list[bytes], counter: str) -> Plan:
        """What the plans of all places begin with."""
        self._used.append(key)
        first = len(self.records) + 1
        self.records += records
        return [len(self._used), first, len(self.records), counter]

    def _turns(self, route: str) -> int:
        """Where in the group's keys those of the route's turns begin."""
        self._used += self._keys.turns(route)
        return len(self._used) - 2

    def _pack_ended(self, message: NewMessage) -> bytes:
        state, reason = message.ending or (State.SCHEDULED, None)
        held = as_held(
            message, state=state, created=self._now, settled=self._now, last_error=reason
        )
        return pack(
            held, generation=self._generation, edition=self._edition, nonce=NO_NONCE, events=b""
        )


def as_held(message: NewMessage, **kept: Any) -> Message:
    """What was asked for as a message that is held, with `kept` of the store's own fields."""
    return Message(
        id=message.id,
        route=message.route,
        key=message.key,
        payload=message.payload,
        due=message.due,
        content_type=message.content_type,
        headers=message.headers,
        expires=message.expires,
        priority=message.priority,
        labels=message.labels,
        topic=message.topic,
        **kept,
    )
