"""RELEASE: one lane per route. Claim due messages, only as many as can be sent now; decide, send,
settle.

A claim's messages go downwards through `_release` (decide), `_send` and `_end` (settle); each batch
is a task of its own, so that a slow send delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.flow.breaker import Breaker, probe_of
from penstock.flow.decide import Decide, Ruling
from penstock.flow.deliver import Deliver, Interrupted
from penstock.flow.observe import Contact, Observer
from penstock.flow.policies import REFRESH_MS, Policies
from penstock.flow.recover import extend_leases
from penstock.flow.settle import SettledStates, Settler
from penstock.model.decision import PaceAllowance
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Claim, Delivered, Settlement
from penstock.model.route import Route
from penstock.model.size import CALL_BYTES, IN_FLIGHT_BYTES, total_size
from penstock.model.state import State
from penstock.ports.sink import EntrySink, Sink
from penstock.ports.store import EntryStore, Store
from penstock.time.clock import Alarm, is_ahead

log = logging.getLogger("penstock.release")

POLL_MS = 200
"""The safety net: wake-ups and known due times do the real work …"""
ANNOUNCED_POLL_MS = 1_000
"""… and where the store announces other processes' puts, to find lost announcements."""
REFILL_MS = 2
"""With a backlog and few free slots, wait this long for more: one claim of many, not many of one.
"""
SPACING_MS, PER_MS = 5, 8
"""If more than PER_MS messages come due per millisecond, claims keep up to SPACING_MS apart: a
claim, a send and a settlement of a hundred together cost little more than of ten.
"""
DECIDING = 2
"""Claims per lane whose policies are being decided at the same time."""
SETTLE_AHEAD = 100
"""Messages sent and not settled while which another send begins, unless the route sets more."""
STORE_AWAY_MS = 500
"""Pause before the next claim when the store, or its policies, did not answer."""
OVERDUE_MS = 5_000
"""Milliseconds by which a send may overrun its timeout; most sinks end the send themselves."""
INTERRUPT_MS = 1_000
"""Milliseconds that an interrupted send may take to end."""
NEVER = 1 << 62
AHEAD_MS = 20
"""Delay when our clock is ahead of the store's: a message due by ours is not due yet. Claiming
again at once until it is due would keep the store busy for the whole difference.
"""
TIMES_FREE = 3
"""A lane's bytes are at most this multiple of the free bytes: one with a dead sink leaves a quarter
of all to the others, two leave a seventh.
"""
WORTH_A_CLAIM = 64
"""At least one part in this many of the whole must be free before a lane with messages in flight
claims more: one claim for several messages, not one for each that is settled.
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim that the store answered, perhaps empty."""

    claim: Claim
    at: int
    """When the claim was made, by this process's estimate of the store's clock."""
    has_backlog: bool
    """True if it gave as many as were requested: more may be due."""

    @property
    def is_ahead(self) -> bool:
        """True if messages that are due by our clock are not due yet by the store's."""
        return self.claim.next_due is not None and self.claim.next_due <= self.at


@dataclass(frozen=True, slots=True)
class Paced:
    """A pace lets nothing through now."""

    again_at: int | None


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The store did not answer."""


NOTHING_YET = Claimed(Claim(0, (), None), 0, has_backlog=False)


def share_of_free(lane: int, free: int) -> int:
    """Bytes that a lane with so many in flight may add, by its share of the free bytes."""
    return (TIMES_FREE * free - lane) // (TIMES_FREE + 1)


class InFlight:
    """The bytes of all messages from their claim until they are settled, over all lanes."""

    def __init__(self, max_bytes: int = IN_FLIGHT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._waiting: set[Alarm] = set()

    def share_of(self, lane: int) -> int:
        """Bytes that a lane with so many in flight may claim now; 0: it must wait."""
        share = share_of_free(lane, self._max_bytes - self._bytes)
        return min(share, CALL_BYTES) if share * WORTH_A_CLAIM >= self._max_bytes else 0

    def add(self, number: int) -> None:
        self._bytes += number

    def remove(self, number: int) -> None:
        self._bytes -= number
        if self._waiting:
            for alarm in self._waiting:
                alarm.ring()
            self._waiting.clear()

    def ring_when_freed(self, alarm: Alarm) -> None:
        """Ring it once, when messages of any lane are settled."""
        self._waiting.add(alarm)


UNSURE = 5
"""A worker does not count on the last fifth of a lease (one of so many parts): its clock may be
behind the store's, and the store does not say that an extension came after the lease was lost."""


class Leases:
    """The leases of one lane, each with how many of its messages are not settled."""

    def __init__(self, lease: int) -> None:
        self._unsure = lease // UNSURE
        self._messages: Counter[int] = Counter()
        self._ends: dict[int, int] = {}
        """Token → until when this process surely has the lease."""
        self._reserved: dict[int, int] = {}
        """Token → until when the caps of its messages are reserved."""

    def take(self, token: int, number: int, until: int) -> None:
        self._messages[token] += number
        self._ends[token] = until - self._unsure

    def settled(self, token: int, number: int) -> None:
        self._messages[token] -= number
        if self._messages[token] <= 0:
            del self._messages[token], self._ends[token]
            self._reserved.pop(token, None)

    def reserve(self, token: int, until: int) -> None:
        """Note until when the policies have reserved the caps of its messages."""
        self._reserved[token] = until

    def reserved_until(self, token: int) -> int:
        """Until when the caps of its messages are reserved; 0: no decision is known."""
        return self._reserved.get(token, 0)

    def hold(self, token: int, now: int) -> bool:
        """True if no other worker can have leased the messages of this token by now."""
        return now < self._ends.get(token, 0)

    def extended(self, tokens: Iterable[int], now: int, until: int) -> None:
        """Note the new end of these leases, unless they were over when the store answered (now)."""
        for token in tokens:
            if now < self._ends.get(token, 0):
                self._ends[token] = until - self._unsure

    @property
    def tokens(self) -> list[int]:
        return list(self._messages)


class Unsettled:
    """Counts messages of a lane that are sent and not settled: a kill now would repeat these."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._few = asyncio.Event()
        self._few.set()

    def add(self, number: int) -> None:
        self._number += number
        if self._number >= self._most:
            self._few.clear()

    def remove(self, number: int) -> None:
        self._number -= number
        if self._number < self._most:
            self._few.set()

    async def are_few(self) -> None:
        """Wait until another send may begin."""
        while not self._few.is_set():
            await self._few.wait()


class Lanes(dict[str, "Lane"]):
    """The lanes of a worker, by route."""

    def wake(self, route: str, due: int) -> None:
        """Something of that route may be due then."""
        lane = self.get(route)
        if lane is not None:
            lane.wake(due)


class Lane:
    """One route's gate: never has more than its capacity in flight, however many are pending."""

    def __init__(
        self,
        route: Route,
        sink: Sink,
        store: Store,
        settler: Settler,
        observer: Observer,
        contact: Contact,
        chance: random.Random,
        *,
        batch_size: int,
        lease: int,
        poll: int = POLL_MS,
        gather: int = 0,
        policies: Policies | None = None,
        held: InFlight | None = None,
    ) -> None:
        """`gather`: milliseconds for which messages that come due after a claim are gathered for
        the next one.
        """
        self.route = route
        self.sink = sink
        self.capacity = route.semaphore_limit or sink.concurrency
        self.in_flight = 0
        """Messages that are claimed and not settled …"""
        self.bytes = 0
        """… and their bytes."""
        self.leases = Leases(lease)
        self.breaker = Breaker(chance)
        self._unsettled = Unsettled(route.settle_ahead or SETTLE_AHEAD)
        self._entries = _beside(store.entries, sink)
        """The sink, if its stream is in the store: messages are added to it as they are settled, in
        one step, so none can be delivered twice.
        """
        self._store = store.messages
        self._keyed = store.keyed
        self._clock = store.clock
        self._settler = settler
        self._observer = observer
        self._contact = contact
        self._policies = policies
        self._decide = Decide(route, policies, observer, store.clock, lease=lease)
        self._deliver = Deliver(route, sink, store.clock, chance, observer)
        self._batch_size = batch_size
        self._lease = lease
        self._poll = poll
        self._announces = store.announces if route.per_key is None else bool
        self._spacing = gather
        self._held = InFlight() if held is None else held
        self._alarm = Alarm(store.clock)
        self._tasks: dict[asyncio.Task[None], None] = {}
        """Claims that are decided and batches until they are settled, in the order in which they
        began: the order of what passes through them does not depend on chance.
        """
        self._sends: dict[asyncio.Task[None], int] = {}
        """Of these, batches in flight or waiting to be sent, with the moment since when."""
        self._deciding: deque[tuple[asyncio.Task[None], int]] = deque()
        """Claims whose policies are being decided while the next one is made, with their sizes."""
        self._last = NOTHING_YET
        """The last claim."""
        self._resting = False
        """True if the last claim left nothing due: the lane waits until something is."""
        self._nearer = NEVER
        """The earliest due of messages put since the last claim began."""
        self._undecided = False
        """True if the policies did not answer about a claim: the next one waits a little."""
        self._stopping = False
        self._failure: BaseException | None = None
        """An unexpected failure of a batch: it ends the worker."""

    def wake(self, due: int) -> None:
        """Something on this route may be due at `due`, and can be claimed then."""
        if self._resting:
            self._alarm.ring_by(max(due, self._worth_at()))
        else:  # the claim in flight may be too early to include it
            self._nearer = min(due, self._nearer)

    @property
    def lag(self) -> int:
        """Milliseconds that the oldest message waits for this worker alone; 0: it keeps up."""
        if not self._last.has_backlog or self.breaker.is_open:
            return 0
        return max(0, self._clock.now() - min(one.due for one in self._last.claim.messages))

    @property
    def is_sending(self) -> bool:
        return bool(self._sends)

    @property
    def overdue(self) -> int:
        """Sends that have been under way for longer than the route's timeout."""
        if self.route.timeout is None:
            return 0
        began_before = self._clock.now() - self.route.timeout - OVERDUE_MS
        return sum(began < began_before for began in self._sends.values())

    def sink_answered(self) -> None:
        """The sink is there, as its check found."""
        if self.breaker.close():
            self._alarm.ring()

    def stop(self) -> None:
        """Claim no more; sends in flight continue."""
        self._stopping = True
        self._alarm.ring()

    async def run(self) -> None:
        """Claim, and let a claim's messages go their way, until stop()."""
        while not self._stopping:
            await self._decided_to(DECIDING)
            await self._gather()
            free = min(self._batch_size, self.capacity - self.in_flight) if self._has_bytes else 0
            wanted = free
            if not self.breaker.lets_all_pass:
                wanted = self.breaker.allowance(free, self._clock.now())
            if wanted <= 0:
                await self._alarm.wait(self.breaker.look_again() if free > 0 else None)
                continue
            match await self._claim(wanted):
                case StoreAway():
                    await self._clock.sleep_until(self._clock.now() + STORE_AWAY_MS)
                case Paced() as paced:
                    await self._alarm.wait(self._when_paced(paced))
                case Claimed() as claimed:
                    self._last = claimed
                    now = await self._begin(claimed) if claimed.claim.messages else None
                    if self._undecided:
                        self._undecided = False
                        await self._clock.sleep_until(self._clock.now() + STORE_AWAY_MS)
                    elif not claimed.has_backlog:
                        self._resting = True
                        await self._alarm.wait(self._next_look(claimed, now))
                        self._resting = False
            if self._failure is not None:
                raise self._failure

    async def finish(self, deadline: int, *, leave: bool) -> None:
        """Wait for sends in flight, then interrupt those that are not done by the deadline.

        A call in a thread cannot be interrupted: it is waited for, or left with its lease.
        """
        await self._sent_by(deadline)
        for task in tuple(self._sends):
            task.cancel()
        await self._sent_by(self._clock.now() + INTERRUPT_MS)
        if not self._sends:
            return
        log.warning(
            "route %s: %d messages are in calls that cannot be interrupted, stay leased and %s",
            self.route.name,
            self.in_flight,
            "go out again when that lease ends" if leave else "are waited for",
        )
        if not leave:
            await asyncio.gather(*self._sends, return_exceptions=True)

    async def _sent_by(self, deadline: int) -> None:
        while self._sends and self._clock.now() < deadline:
            await self._alarm.wait(deadline)

    # Claim

    async def _gather(self) -> None:
        """Wait briefly for more due messages or free slots, where one claim is better than two."""
        if self._last.has_backlog:
            if self.in_flight > self.capacity * 3 // 4:
                await self._clock.sleep_until(self._clock.now() + REFILL_MS)
        elif worth_at := self._worth_at():
            await self._clock.sleep_until(worth_at)

    def _worth_at(self, now: int | None = None) -> int:
        """The moment until which another claim would cost more than it is worth; 0: it is over."""
        last, gather = self._last, self._spacing
        if not last.claim.messages or last.has_backlog:
            return 0
        spacing = max(min(len(last.claim.messages) // PER_MS, SPACING_MS), gather)
        if not spacing:
            return 0
        worth_at = last.at + spacing
        now = self._clock.now() if now is None else now
        return worth_at if is_ahead(worth_at, now, max(SPACING_MS, gather)) else 0

    async def _claim(self, wanted: int) -> Claimed | Paced | StoreAway:
        try:
            policies = self._policies
            if policies is not None and (policies.active or not policies.known):
                allowance = await self._allowance(wanted)
                if allowance.number == 0:
                    return Paced(allowance.again_at)
                wanted = allowance.number
            now = self._clock.now()
            if not self._contact.is_recent(now):
                now = await self._contact.ensure()
            self._nearer = NEVER
            with self._observer.asking("claim"):
                claim = await self._take(wanted, now)
        except StoreUnavailable as exc:
            log.warning(
                "store away, route %s claims nothing until it answers: %s", self.route.name, exc
            )
            return StoreAway()
        except PenstockError:
            log.exception("a claim for %s failed; it is repeated", self.route.name)
            return StoreAway()
        self._contact.answered(now)
        number = len(claim.messages)
        has_backlog = number >= wanted or (number > 0 and claim.stopped_at_bytes)
        return Claimed(claim, now, has_backlog)

    async def _allowance(self, wanted: int) -> PaceAllowance:
        """Number of messages to claim, whatever is decided about those still undecided."""
        undecided = sum(number for _, number in self._deciding)
        allowance = await self._decide.allowance(wanted + undecided)
        if undecided and allowance.number < wanted + undecided:
            await self._decided_to(0)
            allowance = await self._decide.allowance(wanted)
        return allowance if allowance.number <= wanted else PaceAllowance(wanted)

    async def _take(self, number: int, now: int) -> Claim:
        name, per_key = self.route.name, self.route.per_key
        max_bytes = self._held.share_of(self.bytes) or 1
        if per_key is None:
            return await self._store.claim(name, number, self._lease, now, max_bytes)
        assert self._keyed is not None, "wiring refuses such a route"  # noqa: S101 - for the type
        return await self._keyed.claim_keyed(name, number, self._lease, now, per_key, max_bytes)

    def _when_paced(self, paced: Paced) -> int:
        """When the pace allows more; sooner, since the pace may be changed or dropped by then."""
        now = self._clock.now()
        again = now + REFRESH_MS if paced.again_at is None else paced.again_at
        return now + AHEAD_MS if again <= now else min(again, now + REFRESH_MS)

    def _next_look(self, claimed: Claimed, now: int | None) -> int:
        now = self._clock.now() if now is None else now
        if claimed.is_ahead:
            return min(now + min(self._poll, AHEAD_MS), self._nearer)
        poll = max(self._poll, ANNOUNCED_POLL_MS) if self._announces() else self._poll
        next_due = claimed.claim.next_due
        look = min(now + poll, NEVER if next_due is None else next_due, self._nearer)
        return max(look, self._worth_at(now))

    async def _begin(self, claimed: Claimed) -> int | None:
        """Begin to decide and send a claim; with a backlog, the next claim is made without waiting
        for the policies' answer, but claims are decided and sent in their order.

        Returns the current moment, unless time has passed in here.
        """
        claim = claimed.claim
        self.in_flight += len(claim.messages)
        self._hold(total_size(claim.messages))
        self.leases.take(claim.token, len(claim.messages), claimed.at + self._lease)
        now = self._clock.now()
        if now - claimed.at > self._lease // 3:
            await self._extend(claim.token)
            now = self._clock.now()
        if len(claim.messages) > 1 and not self.breaker.lets_all_pass:
            claim = self._only_probe(claim)
        if self._is_plain(claim):
            self._begin_sends(claim.messages, claim.token, {}, now)
            return now
        await self._decided_to(DECIDING - 1)
        before = self._deciding[-1][0] if self._deciding else None
        releasing = self._release(claim, before)
        if claimed.has_backlog and self._decide.asks and self.breaker.lets_all_pass:
            self._deciding.append((self._spawn(releasing), len(claim.messages)))
        else:
            await releasing
        return None

    def _is_plain(self, claim: Claim) -> bool:
        """True if there is nothing to decide: no policy applies, no message can have expired or
        used up its attempts, and no other claim is being decided.
        """
        if self._deciding or (self._policies is not None and self._policies.active):
            return False
        return not any(map(needs_ruling, claim.messages))

    async def _extend(self, token: int) -> None:
        """Extend a lease whose claim was answered late: the rest of it may be too short for a long
        send that is to be extended with the others.
        """
        try:
            times = await extend_leases(
                self._store, self._contact, self._observer, [token], self._lease
            )
        except StoreUnavailable as exc:
            log.warning(
                "store away, a lease of route %s may end during its send: %s", self.route.name, exc
            )
        else:
            self.leases.extended([token], *times)

    def _only_probe(self, claim: Claim) -> Claim:
        """Reduce the claim to one probe of the sink; give the other messages back unsent."""
        chosen = probe_of(claim.messages)
        others = [message for message in claim.messages if message is not chosen]
        self._spawn(self._end(_returned(others, claim.token)))
        return Claim(claim.token, (chosen,), claim.next_due)

    async def _decided_to(self, number: int) -> None:
        """Wait until at most so many claims are undecided; drop the decided ones."""
        while self._deciding and (len(self._deciding) > number or self._deciding[0][0].done()):
            task, _ = self._deciding[0]
            await task
            self._deciding.popleft()

    # Decide, send, settle

    async def _release(self, claim: Claim, before: asyncio.Task[None] | None) -> None:
        """Decide, and begin to send. `before`: the claim whose messages go first."""
        now = self._clock.now()
        ready, refused, allowed, reserved_until = await self._decided(claim, now)
        if reserved_until:
            self.leases.reserve(claim.token, reserved_until)
        if before is not None:
            await asyncio.wait([before])
        if before is not None or self._decide.asks:
            now = self._clock.now()
        if refused:
            self._spawn(self._end(refused))
        if ready:
            self._begin_sends(ready, claim.token, allowed, now)

    def _begin_sends(
        self, ready: Sequence[Message], token: int, allowed: Mapping[str, str], now: int
    ) -> None:
        """A task for each batch."""
        name = self.route.name
        self._observer.count("released", name, len(ready))
        self._observer.late(name, [now - message.due for message in ready])
        probe = 0 if self.breaker.lets_all_pass else self.breaker.began()
        for batch in self._deliver.batches(ready):
            task = self._spawn(self._send(batch, token, allowed, probe))
            self._sends[task] = now

    async def _decided(self, claim: Claim, now: int) -> Ruling:
        try:
            return await self._decide.decide(claim, now)
        except PenstockError as exc:
            log.warning(
                "route %s: policies cannot be asked, the claimed messages are given back: %s",
                self.route.name,
                exc,
            )
            self._undecided = True
            return Ruling([], _returned(claim.messages, claim.token), {})

    async def _send(
        self, batch: Sequence[Message], token: int, allowed: Mapping[str, str], probe: int
    ) -> None:
        """Send one batch and settle it."""
        if self._entries is not None and not self._observer.traces:
            self._sent()
            self.breaker.record((), self._clock.now(), probe)
            batch = await self._add_entries(self._entries, batch, token, allowed)
            if not batch:
                return
            probe = 0
        try:
            await self._unsettled.are_few()
            settlements = await self._settlements(batch, token, allowed, probe)
        except Interrupted as exc:  # by the end of a shutdown, as below
            self._spawn(self._end(exc.sent.settlements))
            raise
        except asyncio.CancelledError:
            self._spawn(self._end(_returned(batch, token, self.leases.reserved_until(token))))
            raise
        finally:
            self._sent()
        self._unsettled.add(len(batch))
        try:
            await self._end(settlements)
        finally:
            self._unsettled.remove(len(batch))

    async def _settlements(
        self, batch: Sequence[Message], token: int, allowed: Mapping[str, str], probe: int
    ) -> list[Settlement]:
        """Send by the sink: how the lease of each message ends."""
        now = self._clock.now()
        if not self.leases.hold(token, now):
            # The store answered so late, or we were stopped for so long, that another may have sent
            # these: ours would be a second send, with the lower attempt. Not begun, so given back.
            self.breaker.not_sent(probe)
            return _returned(batch, token, self.leases.reserved_until(token))
        holds = partial(self.leases.hold, token)
        settlements, outcomes, at = await self._deliver.send(batch, token, allowed, holds, now)
        answered = self.breaker.is_at_rest and type(outcomes[0]) is Delivered
        if not answered and self.breaker.record(outcomes, at, probe):
            self._tell_breaker()
        return settlements

    async def _add_entries(
        self, sink: EntrySink, batch: Sequence[Message], token: int, allowed: Mapping[str, str]
    ) -> Sequence[Message]:
        """Add the batch to its stream and settle it in one step. Messages that the stream did not
        take are returned to be sent one by one, which reports the reason.
        """
        settlements = [
            Settlement(
                message,
                token,
                State.DELIVERED,
                "delivered",
                allowed=allowed.get(message.id),
                entry=sink.entry(message),
            )
            for message in batch
        ]
        states = await self._settler.settle(settlements)
        taken = [state is not State.LEASED for state in states]
        if all(taken):
            self._settled(settlements, states)
            return ()
        pairs = list(zip(settlements, states, strict=True))
        if settled := [pair for pair in pairs if pair[1] is not State.LEASED]:
            self._settled([one for one, _ in settled], [state for _, state in settled])
        return [one.message for one, state in pairs if state is State.LEASED]

    async def _end(self, settlements: Sequence[Settlement]) -> None:
        """The last step of every message: its lease ends."""
        self._settled(settlements, await self._settler.settle(settlements))

    def _settled(self, settlements: Sequence[Settlement], states: SettledStates) -> None:
        events: dict[str, int] = {}
        for settlement, state in zip(settlements, states, strict=True):
            event = "stale" if state is None else settlement.event
            events[event] = events.get(event, 0) + 1
        for event, number in events.items():
            self._observer.count(event, self.route.name, number)
        if "stale" in events:
            log.warning(
                "%d messages of route %s were settled after their lease: they may go out twice",
                events["stale"],
                self.route.name,
            )
        self.leases.settled(settlements[0].token, len(settlements))
        self.in_flight -= len(settlements)
        if self.in_flight:
            self._hold(-total_size([settlement.message for settlement in settlements]))
        else:
            self._hold(-self.bytes)
        waits_for_slot = not self._resting and self._alarm.is_waiting
        if waits_for_slot or self.route.per_key is not None or _puts_back(settlements):
            self._alarm.ring()

    # What is held, and the tasks

    @property
    def _has_bytes(self) -> bool:
        """True if another claim fits the memory limit of this process; one message always does."""
        if not self.in_flight or self._held.share_of(self.bytes):
            return True
        self._held.ring_when_freed(self._alarm)
        return False

    def _hold(self, number: int) -> None:
        """Add so many bytes to those of the messages in flight; negative to release."""
        self.bytes += number
        (self._held.add if number >= 0 else self._held.remove)(abs(number))

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _sent(self) -> None:
        """The send of the batch whose task this is has ended: it cannot be interrupted any more."""
        task = asyncio.current_task()
        if task is not None:
            self._sends.pop(task, None)
        if self._stopping and not self._sends:
            self._alarm.ring()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if task.cancelled():
            return
        if (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._alarm.ring()

    def _tell_breaker(self) -> None:
        if self.breaker.is_open:
            log.warning(
                "%s does not answer: messages of %s wait in the store until it does",
                self.sink.name,
                self.route.name,
            )
        else:
            log.info("%s answers again: %s goes on", self.sink.name, self.route.name)


def needs_ruling(message: Message) -> bool:
    """True if a message may have to be refused even without any policy."""
    return message.expires is not None or message.attempt > 1


def _beside(entries: EntryStore | None, sink: Sink) -> EntrySink | None:
    """The sink, if its stream is on the store's own server."""
    if entries is not None and isinstance(sink, EntrySink) and entries.is_at(sink.place):
        return sink
    return None


def _puts_back(settlements: Sequence[Settlement]) -> bool:
    """True if a settlement may make a message claimable sooner than was known."""
    return any(settlement.state is State.SCHEDULED for settlement in settlements)


def _returned(messages: Sequence[Message], token: int, reserved_until: int = 0) -> list[Settlement]:
    """Back into the store as they were: no send was begun."""
    return [
        Settlement(
            message=message,
            token=token,
            state=State.SCHEDULED,
            due=message.due,
            event="returned",
            refund=True,
            reserved_until=reserved_until,
        )
        for message in messages
    ]
