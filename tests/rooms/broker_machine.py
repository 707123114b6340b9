"""A room written by brokers on Redis, and the plain model of it, step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.model.room import Rate, RoomSettings
from penstock.model.room_admission import RECORD_GRACE_MS
from penstock.stores.redis.rooms.keys import RoomNames
from penstock.stores.redis.rooms.store import RedisRooms
from penstock.testing.room_broker import BrokerRoom, Promoted, Record
from penstock.testing.room_machine import LONG_AGO

T = TypeVar("T")
EVENT = "concert"
users = st.sampled_from([f"u{n}" for n in range(7)])
settings_of_rooms = st.builds(
    RoomSettings,
    capacity=st.integers(0, 4),
    admit_rate=st.sampled_from([None, None, Rate(2, 1000), Rate(50, 1000)]),
    claim_ttl=st.none(),
    session_ttl=st.none(),
    wait_grace=st.none(),
)


class BrokerMachine(RuleBasedStateMachine):
    """Subclasses open the store, empty."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = LONG_AGO
        self.store = self.run(self.open_store())
        self.entries: list[Promoted] = []
        names = RoomNames("penstock", cluster=self.store.runner.cluster)
        keys = [key.decode() for key in names.of_room(EVENT)]
        self.waiting, self.slots = keys[2], keys[1]
        self.records, self.users, self.entry = keys[6], keys[7], keys[-1]

    async def open_store(self) -> RedisRooms:
        raise NotImplementedError

    async def close_store(self) -> None:
        raise NotImplementedError

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.loop.run_until_complete(wait())

    def call(self, *command: str | int) -> Any:
        return self.run(self.store.runner.call(*command))

    def teardown(self) -> None:
        self.run(self.close_store())
        self.loop.close()

    # --- what brokers do ---

    @initialize(settings=settings_of_rooms)
    def the_room_is_made(self, settings: RoomSettings) -> None:
        self.model = BrokerRoom(settings)
        self.run(self.store.put_room(EVENT, settings, None, self.now))

    @rule(user=users, score=st.integers(1, 5))
    def a_member_is_lined_up(self, user: str, score: int) -> None:
        self.call("ZADD", self.waiting, score, user)
        self.model.scores[user] = score

    @rule(user=users, says_when=st.booleans())
    def a_record_is_written(self, user: str, says_when: bool) -> None:
        record = {"instanceId": f"node-{user}"}
        joined = self.now if says_when else None
        if joined is not None:
            record["joinedAt"] = joined  # type: ignore[assignment]  # a number, as brokers write it
        self.call("HSET", self.records, user, json.dumps(record))
        self.model.records[user] = Record(f"node-{user}", joined)

    @rule(user=users)
    def a_user_is_noted(self, user: str) -> None:
        self.call("HSET", self.users, user, "1")
        self.model.users.add(user)

    @rule(user=users)
    def a_member_is_taken_out(self, user: str) -> None:
        self.call("ZREM", self.waiting, user)
        self.model.scores.pop(user, None)

    @rule(number=st.integers(1, 3))
    def slots_are_given_back(self, number: int) -> None:
        self.call("DECRBY", self.slots, number)
        self.model.in_use -= number

    @rule(millis=st.sampled_from([1, 999, 1_000, 1_999, 2_000, 5_000, 61_000, 700_000]))
    def time_passes(self, millis: int) -> None:
        self.now += millis

    # --- what a step does ---

    @rule(limit=st.sampled_from([1, 2, 100, 100]))
    def the_room_is_promoted(self, limit: int) -> None:
        ours, look_at = self.model.promote(self.now, limit)
        (theirs,) = self.run(self.store.promote([EVENT], self.now, limit))
        self.entries += ours
        assert [ticket.user for ticket in theirs.admitted] == [one.user for one in ours]
        assert theirs.look_at == look_at
        capacity = self.model.settings.capacity
        assert self.model.in_use <= capacity or not ours, "never over capacity"
        for user, score in self.model.scores.items():
            if ours and (score, user) < (int(ours[-1].promoted_at), ours[-1].user):
                found, _ = self.model.unrecorded[user]
                assert user not in self.model.records, "first come, first in"
                assert self.now < found + RECORD_GRACE_MS, "awaited no longer than the grace"

    @invariant()
    def the_keys_are_as_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        line = self.call("ZRANGE", self.waiting, 0, -1)
        assert {user.decode() for user in line} == self.model.scores.keys()
        assert {user.decode() for user in self.call("HKEYS", self.records)} == set(
            self.model.records
        )
        assert {user.decode() for user in self.call("HKEYS", self.users)} == self.model.users
        assert int(self.call("GET", self.slots) or 0) == self.model.in_use
        found = [dict(_pairs(flat)) for _, flat in self.call("XRANGE", self.entry, "-", "+")]
        assert [Promoted(e["userId"], e["promotedAt"], e["instanceId"]) for e in found] == (
            self.entries
        )


def _pairs(flat: Any) -> list[tuple[str, str]]:
    if isinstance(flat, dict):
        return [(name.decode(), value.decode()) for name, value in flat.items()]
    return [(a.decode(), b.decode()) for a, b in zip(flat[::2], flat[1::2], strict=True)]
