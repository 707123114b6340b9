"""HAND OVER: move what is pending from one store to another, while both are in use.

    park in the source → put in the target → cancel in the source

A parked message is due at the end of time and remembers its moment in a header, so no worker of
the source sends it, and a hand-over that was killed goes on from the source alone. Each step is
harmless to repeat: parking and cancelling compare the version, and the target knows the id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from penstock.model.errors import ConfigError
from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amended, Amendment, Answer
from penstock.model.query import Cursor, Filter
from penstock.model.recurrence import RuleRow, aimed
from penstock.model.size import in_calls, size_of
from penstock.model.state import State
from penstock.model.times import MAX_TIME
from penstock.ports.recurring import RecurringStore, Swap
from penstock.ports.store import MessageStore, Store

PARKED = MAX_TIME
"""When a parked message or rule is due: never."""
HEADER = "penstock-copied-due"
"""The moment of a parked message; callers cannot set headers of this prefix."""
BATCH = 500
LOOK_MS = 200
"""Between two counts of the messages that the source's workers have in flight."""
OVERHEAD = 4_096
"""Approximate bytes of a message besides its payload and headers."""


class Copied(msgspec.Struct):
    """The counts of a hand-over."""

    moved: int = 0
    known: int = 0
    """Moved messages whose id the target had already, from an earlier run or of its own."""
    dead: int = 0
    rules: int = 0
    policies: int = 0
    suppressions: int = 0
    too_large: list[str] = []
    """Ids of messages that the target does not take; they stay in the source."""
    being_sent: int = 0
    """Messages that the source's workers still had under a lease at the end."""


async def pages(messages: MessageStore, where: Filter) -> AsyncIterator[list[Message]]:
    """Yield every message that matches, page by page, in order of due and id."""
    after: Cursor | None = None
    while True:
        page = await messages.search(where, after, BATCH)
        if page.items:
            yield page.items
        after = page.next
        if after is None:
            return


def is_parked(message: Message) -> bool:
    return message.due == PARKED and HEADER in (message.headers or {})


def as_new(message: Message, *, on_conflict: OnConflict = OnConflict.KEEP) -> NewMessage:
    """The message as another store is to be given it; a parked one has its own moment again."""
    headers = dict(message.headers or {})
    moment = headers.pop(HEADER, None)
    dead = (message.last_error or "") if message.state is State.DEAD else None
    return NewMessage(
        message.id,
        message.route,
        message.key,
        message.payload,
        int(moment) if moment is not None and is_parked(message) else message.due,
        content_type=message.content_type,
        headers=headers or None,
        expires=message.expires,
        priority=message.priority,
        labels=message.labels,
        topic=message.topic,
        on_conflict=on_conflict,
        dead=dead,
    )


class Handover:
    """One run of `penstock store copy`."""

    def __init__(self, source: Store, target: Store, moved: Callable[[int], None]) -> None:
        """`moved` is called with the number of messages of each step."""
        if source.name == target.name:
            raise ConfigError(f"FROM and TO are the same store: {source.name}")
        self._source = source
        self._target = target
        self._from = source.messages
        self._to = target.messages
        self._moved = moved
        self._changed: set[str] = set()
        """Ids that a caller changed in the source after the target had them."""
        self._refused: set[str] = set()
        self._steps = 0
        self.copied = Copied()

    async def pending(self) -> int:
        """Approximate number of messages to move."""
        figures = await self._from.figures(self._from.clock.now())
        return sum(route.scheduled + route.dead for route in figures.routes.values())

    async def run(self, wait: int) -> Copied:
        """Move everything; wait at most so many milliseconds for messages in flight."""
        await self._carry_rules()
        clock = self._from.clock
        deadline = clock.now() + wait
        while True:
            while await self._pass(State.SCHEDULED, self._hand_over):
                pass
            self.copied.being_sent = await self._count(State.LEASED)
            now = clock.now()
            if not self.copied.being_sent or now >= deadline:
                break
            if not await self._from.reap(now, BATCH):
                await clock.sleep_until(min(deadline, now + LOOK_MS))
        await self._pass(State.DEAD, self._hand_over_dead)
        self.copied.too_large = sorted(self._refused)
        return self.copied

    async def _pass(
        self, state: State, hand_over: Callable[[Sequence[Message]], Awaitable[None]]
    ) -> int:
        """Run one pass; return how many messages moved or changed after their page was read."""
        before = self._steps
        async for page in pages(self._from, Filter(state=state)):
            for part in in_calls([message for message in page if self._fits(message)]):
                await hand_over(part)
        return self._steps - before

    async def _count(self, state: State) -> int:
        number = 0
        async for page in pages(self._from, Filter(state=state)):
            number += len(page)
        return number

    def _fits(self, message: Message) -> bool:
        most = self._target.max_message
        if most is None or size_of(message) + OVERHEAD <= most:
            return True
        self._refused.add(message.id)
        return False

    # --- messages ---

    async def _hand_over(self, messages: Sequence[Message]) -> None:
        taken = [message for message in messages if is_parked(message)]
        taken += await self._park([message for message in messages if not is_parked(message)])
        if not taken:
            return
        receipts = await self._to.put([self._as_new(m) for m in taken], self._to.clock.now())
        self.copied.known += sum(receipt.duplicate for receipt in receipts)
        now = self._from.clock.now()
        answers = await self._amend(self._from, Action.CANCEL, taken, now)
        withdrawn = []
        for message, amended in zip(taken, answers, strict=True):
            if amended.answer is not Answer.DONE:
                self._changed.add(message.id)  # the next pass brings it as it is now
                self._steps += 1
            elif amended.message is not None and amended.message.settled != now:
                withdrawn.append(message)  # a caller cancelled it during the pass
        if withdrawn:
            cancels = [Amendment(action=Action.CANCEL, id=message.id) for message in withdrawn]
            await self._to.amend(cancels, self._to.clock.now())
        self._count_moved(sum(one.answer is Answer.DONE for one in answers) - len(withdrawn))

    async def _park(self, messages: Sequence[Message]) -> list[Message]:
        """Park messages; return, as they now are, those that no worker of the source can send."""
        parked = [
            replace(
                message,
                due=PARKED,
                version=message.version + 1,
                headers={**(message.headers or {}), HEADER: str(message.due)},
            )
            for message in messages
        ]
        amendments = [
            Amendment(
                action=Action.RESCHEDULE,
                id=message.id,
                version=message.version - 1,
                due=PARKED,
                headers=message.headers,
            )
            for message in parked
        ]
        answers = await self._from.amend(amendments, self._from.clock.now())
        self._steps += sum(amended.answer is Answer.CONFLICT for amended in answers)
        return [
            message
            for message, amended in zip(parked, answers, strict=True)
            if amended.answer is Answer.DONE
        ]

    def _as_new(self, message: Message) -> NewMessage:
        changed = message.id in self._changed
        return as_new(message, on_conflict=OnConflict.REPLACE if changed else OnConflict.KEEP)

    async def _hand_over_dead(self, messages: Sequence[Message]) -> None:
        new = [as_new(message) for message in messages]
        receipts = await self._to.put(new, self._to.clock.now())
        answers = await self._amend(self._from, Action.DELETE, messages, self._from.clock.now())
        redriven = [
            message
            for message, receipt, amended in zip(messages, receipts, answers, strict=True)
            if amended.answer is Answer.RELEASED and not receipt.duplicate
        ]
        await self._amend(self._to, Action.DELETE, redriven, self._to.clock.now())
        number = sum(one.answer is Answer.DONE for one in answers)
        self.copied.dead += number
        self.copied.known += sum(receipt.duplicate for receipt in receipts)
        self._count_moved(number)

    @staticmethod
    async def _amend(
        store: MessageStore, action: Action, messages: Sequence[Message], now: int
    ) -> list[Amended]:
        if not messages:
            return []
        fenced = action is Action.CANCEL
        return await store.amend(
            [
                Amendment(action=action, id=m.id, version=m.version if fenced else None)
                for m in messages
            ],
            now,
        )

    def _count_moved(self, number: int) -> None:
        self.copied.moved += number
        self._steps += number
        self._moved(number)

    # --- policies and rules that decide about messages ---

    async def _carry_rules(self) -> None:
        """Copy paused routes, policies and suppressions, and hand over recurring rules.

        Runs before any message moves: the target must not send a message that the source would
        defer.
        """
        await self._carry_policies()
        for route in await self._from.paused():
            await self._to.pause(route, True)
        source, target = self._source.recurring, self._target.recurring
        if source is None:
            return
        async for row in rules_of(source):
            if target is None:
                raise ConfigError(f"the store {self._target.name} keeps no recurring rules")
            await self._hand_over_rule(source, target, row)

    async def _carry_policies(self) -> None:
        source, target = self._source.policies, self._target.policies
        if source is None:
            return
        book = await source.book()
        if book and target is None:
            raise ConfigError(f"the store {self._target.name} keeps no policies")
        if target is None:
            return
        there = await target.book()
        for name, policy in book.policies.items():
            if name not in there.policies:
                await target.put_policy(name, policy)
                self.copied.policies += 1
        for name in book.suppressions:
            suppression = await source.suppression(name)
            if name not in there.suppressions and suppression is not None:
                await target.put_suppression(name, suppression)
                self.copied.suppressions += 1

    async def _hand_over_rule(
        self, source: RecurringStore, target: RecurringStore, row: RuleRow
    ) -> None:
        """Park it in the source, put it into the target, delete it in the source."""
        expected = 0
        read: RuleRow | None = row
        while read is not None:
            parked = replace(read, wake=PARKED, revision=read.revision + 1)
            if read.wake != PARKED and not await _swapped(source, read, parked):
                (read,) = await source.rules([row.id])
                continue
            if read.wake == PARKED:
                parked = read
            own = replace(aimed(parked), revision=expected + 1)
            if not (await target.swap([Swap(row.id, expected, own)]))[0] and expected == 0:
                self.copied.known += 1  # from a run before, or one of its own: it stays
            if await _swapped(source, parked, None):
                self.copied.rules += 1
                return
            (read,) = await source.rules([row.id])  # a caller changed it: try again
            (there,) = await target.rules([row.id])
            expected = 0 if there is None else there.revision


async def _swapped(store: RecurringStore, read: RuleRow, row: RuleRow | None) -> bool:
    return (await store.swap([Swap(read.id, read.revision, row)]))[0]


async def rules_of(store: RecurringStore) -> AsyncIterator[RuleRow]:
    """Every recurring rule, in order of their ids."""
    after: str | None = None
    while rows := await store.page(after, BATCH):
        for row in rows:
            yield row
        after = rows[-1].id
