"""SETTLE: end leases by the outcome of the send; a stale token changes nothing.

The delivered, nearly all of them, are settled by deliver.lua, which tests/conformance holds equal
to `lifecycle.settle`. The others are loaded, stepped and swapped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from penstock.model import lifecycle
from penstock.model.errors import PartlyUnavailable, PenstockError, StoreUnavailable
from penstock.model.outcome import Settlement, StreamEntry
from penstock.model.state import State
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.runner import Group, Plan, Step, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.records import (
    STATES,
    Held,
    nonce_of,
    pack_decided,
    pack_id,
    pack_ids,
    pack_token,
    target_of,
)
from penstock.stores.redis.messages.swap import Swap, change, load
from penstock.stores.redis.session import Session

_DELIVER = Script("stores/redis/messages/deliver.lua")

UNANSWERED = 100_000
"""Settlements whose answer was lost that are remembered at most."""

_token_and_allowed = attrgetter("token", "allowed")
_Settlements = Sequence[Settlement]
RunStep: TypeAlias = Callable[[Step], Awaitable[Sequence[Reply | PenstockError]]]
"""Runs deliver.lua: an answer a group, or the error of one that failed."""


class Settling:
    """Settles, and remembers the settlements whose answer was lost.

    Every settlement writes a nonce into its record. A settlement repeated after a lost answer has
    the nonce of its first try, and so learns that it was done rather than that its lease is gone.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._unanswered: OrderedDict[tuple[int, str], bytes] = OrderedDict()

    @property
    def is_answered(self) -> bool:
        """True if every settlement has been answered."""
        return not self._unanswered

    async def settle(
        self, settlements: _Settlements, now: int, run: RunStep | None = None
    ) -> list[State | None]:
        """`run`: runs the script for the delivered in place of a plain call, once if
        `is_answered`.
        """
        fresh = secrets.token_bytes(4)
        delivered: dict[bytes, list[int]] = {}
        others: dict[int, bytes] = {}
        for i, one in enumerate(settlements):
            nonce = fresh
            if self._unanswered:
                nonce = self._unanswered.get((one.token, one.message.id), fresh)
            if one.state is State.DELIVERED:
                delivered.setdefault(nonce, []).append(i)
            else:
                others[i] = nonce
        answers: dict[int, State | PenstockError | None] = {}
        run = run or self._run
        steps = [self._deliver(settlements, *part, now, answers, run) for part in delivered.items()]
        if others:
            steps.append(self._step_others(settlements, others, now, answers))
        await asyncio.gather(*steps)
        nonces = {i: nonce for nonce, indexes in delivered.items() for i in indexes} | others
        return self._answered(settlements, answers, nonces)

    def _answered(
        self,
        settlements: _Settlements,
        answers: dict[int, State | PenstockError | None],
        nonces: dict[int, bytes],
    ) -> list[State | None]:
        """The states; remembers unanswered settlements, which the caller will repeat."""
        states: dict[int, State | None] = {}
        failed: PenstockError | None = None
        for i, answer in sorted(answers.items()):
            one = settlements[i]
            if isinstance(answer, PenstockError):
                failed = failed or answer
                self._unanswered[one.token, one.message.id] = nonces[i]
                if len(self._unanswered) > UNANSWERED:
                    self._unanswered.popitem(last=False)
            else:
                states[i] = answer
                if self._unanswered:
                    self._unanswered.pop((one.token, one.message.id), None)
        if isinstance(failed, StoreUnavailable) and states:
            raise PartlyUnavailable(failed.message, states) from failed
        if failed is not None:
            raise failed
        return list(states.values())

    def _by_partition(
        self, settlements: _Settlements, indexes: Sequence[int]
    ) -> dict[int, list[int]]:
        """Partition → indexes; one that was not claimed here has no handle: its home, then."""
        layout = self._session.layout
        by_partition: dict[int, list[int]] = {}
        for i in indexes:
            message = settlements[i].message
            partition = message.ref - 1
            if not 0 <= partition < layout.total:
                partition = layout.home(message.id)
            by_partition.setdefault(partition, []).append(i)
        return by_partition

    async def _step_others(
        self,
        settlements: _Settlements,
        nonces: dict[int, bytes],
        now: int,
        answers: dict[int, State | PenstockError | None],
    ) -> None:
        places = list(nonces)
        ended = [settlements[i] for i in places]
        ids = [one.message.id for one in ended]

        async def find(indexes: list[int]) -> list[Held | PenstockError | None]:
            by_partition = self._by_partition(ended, indexes)
            found = await self._session.try_look(by_partition, ids, without_payload=True)
            return [found[i] for i in indexes]

        def step(i: int, held: Held | None) -> tuple[State | None, Swap | None]:
            return _step(ended[i], held, nonces[places[i]], now)

        settled: Sequence[State | PenstockError | None]
        try:
            settled = await change(self._session, ids, find, step, now)
        except PenstockError as exc:  # some may be done: they are tried again under their nonces
            settled = [exc] * len(ids)
        answers.update(zip(places, settled, strict=True))

    async def _deliver(
        self,
        settlements: _Settlements,
        nonce: bytes,
        indexes: list[int],
        now: int,
        answers: dict[int, State | PenstockError | None],
        run: RunStep,
    ) -> None:
        session = self._session
        common: list[Argument] = [now, nonce, session.retention, session.kept_each]
        by_partition = self._by_partition(settlements, indexes)
        groups = [
            self._group(partition, [settlements[i] for i in some])
            for partition, some in by_partition.items()
        ]
        replies = await run(Step(_DELIVER, groups, common))
        for some, reply in zip(by_partition.values(), replies, strict=True):
            for place, i in enumerate(some):
                if isinstance(reply, PenstockError):
                    answers[i] = reply
                else:
                    answers[i] = None if reply[place] is None else STATES[reply[place]]

    async def _run(self, step: Step) -> Sequence[Reply | PenstockError]:
        return await self._session.runner.try_run(*step)

    def _group(self, partition: int, sent: list[Settlement]) -> Group:
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
        turns: dict[str, int] = {}  # route → the index in the group's keys of those of its turns
        if keyed := self._session.layout.keyed:
            for route in {one.message.route for one in sent} & keyed.keys():
                used += keys.turns(route)
                turns[route] = len(used) - 2
        entries = _entries([one.entry for one in sent], used)
        members = pack_ids([one.message.id for one in sent])
        plan = [len(sent), _runs(sent), turns or False, entries or False]
        return Group(partition, used, plan, members)


def _step(
    settlement: Settlement, held: Held | None, nonce: bytes, now: int
) -> tuple[State | None, Swap | None]:
    """The state after it, and the change; a settlement made before is known by its nonce."""
    if held is None or target_of(held.record) is not None:
        return None, None
    loaded = load(pack_id(settlement.message.id), held)
    state, after, noted = lifecycle.settle(loaded.record, settlement, now)
    if state is None or after is None:
        return STATES[held.record[0]] if nonce_of(held.record) == nonce else None, None
    return state, Swap(loaded, after.message, noted, nonce)


def _entries(entries: list[StreamEntry | None], used: list[bytes]) -> list[Plan | bool] | None:
    """The arguments of XADD for each, False for those without; None if none has any."""
    if not any(entries):
        return None
    streams: dict[str, int] = {}
    added: list[Plan | bool] = []
    for entry in entries:
        if entry is None:
            added.append(False)
            continue
        if entry.stream not in streams:
            used.append(entry.stream.encode())
            streams[entry.stream] = len(used)
        words = [raw(word) for word in entry.fields]
        added.append([streams[entry.stream], entry.maxlen or False, words])
    return added


def _runs(sent: list[Settlement]) -> list[Plan]:
    """Runs of equal tokens with their lengths, and the stored part of their decisions."""
    runs: list[Plan] = []
    for (token, _), run in groupby(sent, key=_token_and_allowed):
        same = list(run)
        kept = same[0].kept
        packed = False if kept is None else raw(pack_decided(kept))
        runs.append([raw(pack_token(token)), len(same), packed])
    return runs
