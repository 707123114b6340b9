"""SETTLE: end leases by what came of the send; a stale token changes nothing."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from penstock.model.errors import PartlyUnavailable, PenstockError, StoreUnavailable
from penstock.model.outcome import Entry, Settlement
from penstock.model.state import State
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group, Plan, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import PartitionKeys
from penstock.stores.redis.messages.buckets import bucket_entry, spot_for
from penstock.stores.redis.messages.records import (
    MAX_DETAIL,
    NUMBERS,
    STATES,
    pack_decided,
    pack_id,
    pack_token,
)
from penstock.stores.redis.session import Session

_SETTLE = Script("stores/redis/messages/settle.lua")

UNANSWERED = 100_000
"""Settlements whose answer was lost that are remembered at most."""

_SCHEDULED = NUMBERS[State.SCHEDULED]
_token_and_allowed = attrgetter("token", "allowed")


class Settling:
    """Settles, and remembers what it could not get an answer for.

    Every call writes its nonce into the records it changes. A settlement that is asked again
    after its answer was lost goes with the nonce of the first try, and so learns that it was done
    rather than that its lease is gone.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unanswered: OrderedDict[tuple[int, str], bytes] = OrderedDict()

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        states: list[State | None] = [None] * len(settlements)
        by_nonce: dict[bytes, list[int]] = {}
        fresh = secrets.token_bytes(4)
        for i, one in enumerate(settlements):
            nonce = fresh
            if self._unanswered:
                nonce = self._unanswered.get((one.token, one.message.id), fresh)
            by_nonce.setdefault(nonce, []).append(i)
        failed: PenstockError | None = None
        unanswered: set[int] = set()
        for nonce, places in by_nonce.items():
            error = await self._settle_some(settlements, places, nonce, now, states, unanswered)
            failed = failed or error
        if isinstance(failed, StoreUnavailable) and len(unanswered) < len(settlements):
            answers = {i: state for i, state in enumerate(states) if i not in unanswered}
            raise PartlyUnavailable(failed.message, answers) from failed
        if failed is not None:
            raise failed
        return states

    async def _settle_some(
        self,
        settlements: Sequence[Settlement],
        places: list[int],
        nonce: bytes,
        now: int,
        states: list[State | None],
        unanswered: set[int],
    ) -> PenstockError | None:
        session = self._session
        groups, order = self._groups(settlements, places, now)
        common: list[Argument] = [
            now,
            nonce,
            session.retention,
            session.kept_each,
            session.wakeups.channel,
        ]
        replies = await session.runner.try_run(_SETTLE, groups, common)
        failed: PenstockError | None = None
        for wanted, reply in zip(order, replies, strict=True):
            if isinstance(reply, PenstockError):
                failed = reply
                unanswered.update(wanted)
                continue
            for i, number in zip(wanted, reply, strict=True):
                states[i] = None if number is None else STATES[number]
                if number == _SCHEDULED:
                    self._tell(settlements[i])
        if failed is not None:
            # The caller will ask for these again.
            for i in unanswered.intersection(places):
                self._remember(settlements[i], nonce)
        elif self._unanswered:
            for i in places:
                self._unanswered.pop((settlements[i].token, settlements[i].message.id), None)
        return failed

    def _tell(self, settlement: Settlement) -> None:
        message = settlement.message
        due = message.due if settlement.due is None else settlement.due
        self._session.wakeups.tell(message.route, due)

    def _remember(self, settlement: Settlement, nonce: bytes) -> None:
        self._unanswered[settlement.token, settlement.message.id] = nonce
        if len(self._unanswered) > UNANSWERED:
            self._unanswered.popitem(last=False)

    def _groups(
        self, settlements: Sequence[Settlement], places: list[int], now: int
    ) -> tuple[list[Group], list[list[int]]]:
        """The groups, and which settlements each answers for, in its order."""
        delivered: dict[int, list[int]] = {}
        others: dict[int, list[int]] = {}
        for i in places:
            one = settlements[i]
            # A message without a handle was not claimed here; its home is as good as any.
            partition = one.message.ref - 1
            if not 0 <= partition < self._session.layout.total:
                partition = self._session.layout.home(one.message.id)
            kind = delivered if one.state is State.DELIVERED else others
            kind.setdefault(partition, []).append(i)
        groups, order = [], []
        for partition in {**delivered, **others}:
            sent, rest = delivered.get(partition, []), others.get(partition, [])
            groups.append(self._group(partition, settlements, sent, rest, now))
            order.append([*sent, *rest])
        return groups, order

    def _group(
        self,
        partition: int,
        settlements: Sequence[Settlement],
        sent: list[int],
        rest: list[int],
        now: int,
    ) -> Group:
        keys = self._session.layout.keys(partition)
        used = [
            keys.records,
            keys.leases,
            keys.tokens,
            keys.grants,
            keys.counters,
            keys.settled,
            keys.by_key,
            keys.unused,
        ]
        arguments = [pack_id(settlements[i].message.id) for i in sent]
        runs = _runs([settlements[i] for i in sent])
        plans = [self._plan(settlements[i], keys, used, now) for i in rest]
        turns: dict[str, int] = {}  # route → where in the group's keys those of its turns begin
        if keyed := self._session.layout.keyed:
            for route in {settlements[i].message.route for i in (*sent, *rest)} & keyed.keys():
                used += keys.turns(route)
                turns[route] = len(used) - 2
        entries = _entries([settlements[i].entry for i in sent], used)
        plan = [len(sent), runs, plans, turns or False, entries or False]
        return Group(partition, used, plan, arguments)

    def _plan(self, one: Settlement, keys: PartitionKeys, used: list[bytes], now: int) -> Plan:
        message = one.message
        member = pack_id(message.id)
        word = False if one.event == one.state.value else one.event
        detail, kept = one.detail, one.kept
        head: Plan = [
            raw(member),
            raw(pack_token(one.token)),
            NUMBERS[one.state],
            int(one.refund),
            False if one.due is None else one.due,
            False if one.error is None else one.error,
            word,
            False if detail is None else detail[:MAX_DETAIL],
            False if kept is None else raw(pack_decided(kept)),
            False if one.allowed is None else one.allowed[:MAX_DETAIL],
        ]
        if one.state is State.DEAD:
            used.append(keys.dead(message.route))
            return [*head, "", len(used), False, "", ""]
        due = message.due if one.due is None else one.due
        bucket = self._session.bucket_for(due, now)
        spot = spot_for(keys, message.route, message.priority, bucket)
        used.append(spot.key)
        place = len(used)
        if bucket is None or spot.index_key is None:
            return [*head, spot.counter, place, False, "", ""]
        used.append(spot.index_key)
        entry = raw(bucket_entry(bucket, due, member))
        return [*head, spot.counter, place, len(used), entry, spot.member]


def _entries(entries: list[Entry | None], used: list[bytes]) -> list[Plan | bool] | None:
    """What XADD is to be told of each, false for those without; None where none has one."""
    if not any(entries):
        return None
    streams: dict[str, int] = {}
    told: list[Plan | bool] = []
    for entry in entries:
        if entry is None:
            told.append(False)
            continue
        if entry.stream not in streams:
            used.append(entry.stream.encode())
            streams[entry.stream] = len(used)
        words = [raw(word) for word in entry.fields]
        told.append([streams[entry.stream], entry.maxlen or False, words])
    return told


def _runs(sent: list[Settlement]) -> list[Plan]:
    """Tokens with how many in a row have them, and what is kept of their decisions."""
    runs: list[Plan] = []
    for (token, _), run in groupby(sent, key=_token_and_allowed):
        same = list(run)
        kept = same[0].kept
        packed = False if kept is None else raw(pack_decided(kept))
        runs.append([raw(pack_token(token)), len(same), packed])
    return runs
