"""Walks of a store's promises per key beside the plain book, drawn by Hypothesis.

    @given(limits(), walks())
    async def test_my_store_keeps_turns(per_key, steps):
        await walk(MyHarness(), per_key, steps)

What a message is about does not change in these walks: every id has its route and its key.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict
from penstock.ports.store import MessageStore, Store
from penstock.stores.memory.messages import MessageBook
from penstock.testing.store_harness import DAY_MS, MANY, StoreHarness

KEYS = ("ann", "ann", "bob", None)
"""Keys by an id's number; None for the id itself."""
NAMES = tuple(f"id-{number}" for number in range(12))
"""Few ids, so that walks meet the same message repeatedly."""
PLAIN = NAMES[-1]
"""The id on a route without promises per key."""
FAR = 10 * 60_000
LEASE, SHORT = 5_000, 20
REFUSED = Decided(Verdict.DEFER, "p", "why")
KINDS = (
    *("put",) * 3,
    *("claim",) * 6,
    *("settle",) * 5,
    *("amend",) * 3,
    *("lose", "plain", "wait", "crash"),
)
ENDS = (State.DELIVERED, State.SCHEDULED, State.SCHEDULED, State.DEAD, State.EXPIRED)


class Step(NamedTuple):
    """A step, and numbers that choose its message and its details."""

    kind: str
    pick: int
    ahead: int
    """Milliseconds from now."""
    how: int


def limits() -> st.SearchStrategy[KeyLimit]:
    return st.sampled_from([KeyLimit(1, ordered=True), KeyLimit(1, ordered=True), KeyLimit(2)])


def walks(length: int = 40) -> st.SearchStrategy[list[Step]]:
    aheads = st.sampled_from([-20, -5, -1, 0, 1, 25, FAR])
    step = st.builds(Step, st.sampled_from(KINDS), st.integers(0, 999), aheads, st.integers(0, 999))
    return st.lists(step, min_size=length, max_size=length)


async def walk(
    harness: StoreHarness,
    per_key: KeyLimit,
    steps: list[Step],
    *,
    all_at_once: bool = False,
    alone: bool = True,
) -> None:
    """Take every step in the store and in the reference; their answers must be equal.

    With `all_at_once`, claims take everything there is, for a store that leaves the order of keys
    open. Without `alone`, the store works in the background, so that a claim may find a reason to
    look again.
    """
    walker = _Walker(harness, per_key, await harness.open(), 100 if all_at_once else 0, alone)
    try:
        await walker.claim(Step("claim", 0, 0, 0))  # so that the store learns of the promise
        await walker.begin()
        for step in steps:
            await getattr(walker, step.kind)(step)
            await walker.compare()
    finally:
        await walker.store.close()
        await harness.close()


class _Walker:
    def __init__(
        self,
        harness: StoreHarness,
        per_key: KeyLimit,
        opened: Store,
        limit: int,
        alone: bool,
    ) -> None:
        self._opened = opened
        self._harness = harness
        self._per_key = per_key
        self._limit = limit
        self._alone = alone
        self._book = MessageBook(retention=DAY_MS, retention_count=MANY)
        self._leases: list[tuple[Message, int]] = []
        """Every lease ever issued, stale or not."""

    @property
    def store(self) -> MessageStore:
        return self._opened.messages

    @property
    def _now(self) -> int:
        return self.store.clock.now()

    async def begin(self) -> None:
        """Begin with some messages to choose from."""
        for place in range(0, len(NAMES), 2):
            await self.put(Step("put", place, -20 + place, 1))

    async def put(self, step: Step) -> None:
        """Put one to three messages, one after the other."""
        now = self._now
        batch = []
        for place in range(step.how % 3 + 1):
            name = NAMES[(step.pick + place) % len(NAMES)]
            batch.append(
                NewMessage(
                    id=name,
                    route="plain" if name == PLAIN else "r",
                    key=KEYS[int(name[3:]) % len(KEYS)] or name,
                    payload=b"1",
                    due=now + step.ahead - place,
                    priority=step.pick % 10,
                    on_conflict=tuple(OnConflict)[step.how % len(OnConflict)],
                )
            )
        assert await self.store.put(batch, now) == self._book.put(batch, now)

    async def claim(self, step: Step) -> None:
        limit, lease = self._limit or step.pick % 4 + 1, (LEASE, LEASE, SHORT)[step.how % 3]
        now = self._now
        keyed = self._opened.keyed
        assert keyed is not None, "these walks are for a store that can claim by key"
        claim = await keyed.claim_keyed("r", limit, lease, now, self._per_key)
        wanted = self._book.claim_keyed(
            "r", limit, lease, now, self._per_key, token=claim.token or None
        )
        assert [m.id for m in claim.messages] == [m.id for m in wanted.messages]
        if self._alone and len(claim.messages) < limit:
            assert claim.next_due is None or claim.next_due > now
        if wanted.next_due is not None:
            assert claim.next_due is not None, "no claim would follow"
            assert claim.next_due <= wanted.next_due
        self._leases += [(message, claim.token) for message in claim.messages]

    async def plain(self, _: Step) -> None:
        now = self._now
        claim = await self.store.claim("plain", 5, SHORT, now)
        wanted = self._book.claim("plain", 5, SHORT, now, token=claim.token or None)
        assert [m.id for m in claim.messages] == [m.id for m in wanted.messages]
        self._leases += [(message, claim.token) for message in claim.messages]

    async def settle(self, step: Step) -> None:
        """Settle a leased message, or sometimes one whose lease has ended."""
        records = self._book.records
        current = [
            (m, token)
            for m, token in self._leases
            if (record := records.get(m.id)) is not None and record.token == token
        ]
        chosen = current if current and step.how % 7 else self._leases
        if not chosen:
            return
        message, token = chosen[step.pick % len(chosen)]
        state = ENDS[step.how % len(ENDS)]
        again = state is State.SCHEDULED
        now = self._now
        one = Settlement(
            message=message,
            token=token,
            state=state,
            due=now + step.ahead if again else None,
            event="retry" if again else state.value,
            refund=again and step.how % 2 == 0,
            decided=REFUSED if again and step.how % 3 == 0 else None,
        )
        assert await self.store.settle([one], now) == self._book.settle([one], now)

    async def lose(self, _: Step) -> None:
        """Let leases run out."""
        await self._harness.pass_time(SHORT + 5)
        now = self._now
        reaped = await self.store.reap(now, 100)
        wanted = self._book.reap(now, 100)
        assert sorted(one.id for one in reaped) == sorted(one.id for one in wanted)

    async def amend(self, step: Step) -> None:
        held = [record.message for record in self._book.records.values()]
        waiting = [message.id for message in held if message.state is State.SCHEDULED]
        names = waiting if waiting and step.how % 4 else NAMES
        action = tuple(Action)[step.how % len(Action)]
        now = self._now
        due = now + step.ahead if action in (Action.RESCHEDULE, Action.REDRIVE) else None
        change = Amendment(action=action, id=names[step.pick % len(names)], due=due)
        (answer,) = await self.store.amend([change], now)
        (wanted,) = self._book.amend([change], now)
        assert answer.answer is wanted.answer

    async def wait(self, step: Step) -> None:
        await self._harness.pass_time(step.pick % 30 + 1)

    async def crash(self, _: Step) -> None:
        await self._harness.crash(self._opened)
        self._opened = await self._harness.open()

    async def compare(self) -> None:
        for name, message in zip(NAMES, await self.store.find(NAMES), strict=True):
            held = self._book.find(name)
            assert (message is None) == (held is None), name
            if message is not None and held is not None:
                assert (message.key, message.due, message.state) == (held.key, held.due, held.state)
                assert (message.attempt, message.version) == (held.attempt, held.version)
