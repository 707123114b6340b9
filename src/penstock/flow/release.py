"""RELEASE: one lane a route. Claim what is due, only as much as can be sent now, and send it on."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.flow.breaker import Breaker, probe_of
from penstock.flow.contact import Contact
from penstock.flow.decide import Decide, Ruling
from penstock.flow.deliver import Deliver, tell_failures
from penstock.flow.in_flight import InFlight
from penstock.flow.observe import Observer
from penstock.flow.policies import REFRESH_MS, Policies
from penstock.flow.settle import SettledStates, Settler
from penstock.model.decision import Room
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Claim, SendOutcome, Settlement
from penstock.model.route import Route
from penstock.model.size import total_size
from penstock.model.state import State
from penstock.ports.sink import EntrySink, Sink
from penstock.ports.store import EntryStore, Store
from penstock.time.clock import Alarm, is_ahead

log = logging.getLogger("penstock.release")

POLL_MS = 200
"""The safety net: wake-ups and known due times do the real work."""
GATHER_MS = 2
"""With a backlog and few free slots, wait this long for more: one claim for many, not many."""
SPACING_MS, PER_MS = 5, 8
"""Where more than so many come due in a millisecond, claims keep up to this distance: a claim, a
send and a settlement for a hundred together cost little more than for ten."""
DECIDING = 2
"""Claims that policies are asked about at once."""
FEW = 100
"""Messages sent and not settled that a lane allows itself, where a batch of its sink is less."""
STORE_AWAY_MS = 500
OVERDUE_MS = 5_000
"""How much longer than its timeout a send may take: a sink ends most of them by itself."""
INTERRUPT_MS = 1_000
"""How long a send that is interrupted may take to end."""
NEVER = 1 << 62
AHEAD_MS = 20
"""Our clock is ahead of the store's: what is due by ours is not yet. Asking at once, and again and
again until it is, would keep the store busy for as long as we are wrong."""


class Lane:
    """One route's gate: never holds more than its capacity, whatever is pending."""

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
        policies: Policies | None = None,
        held: InFlight | None = None,
    ) -> None:
        self.route = route
        self.sink = sink
        self.capacity = route.semaphore_limit or sink.concurrency
        self.in_flight = 0
        self.bytes = 0
        """Of what is in flight."""
        self._settle_ahead = route.settle_ahead or _most_ahead(sink)
        self._entries = _beside(store.entries, sink)
        """The sink, where its stream is in the store: messages are added to it as they are settled,
        in one step, and none can come twice."""
        self._unsettled = 0
        """Messages that are sent and not settled: those that a kill now would repeat."""
        self._may_send = asyncio.Event()
        """Not set while as many are as the route allows."""
        self._may_send.set()
        self.tokens: Counter[int] = Counter()
        """Leases held here, with how many of their messages are not settled yet."""
        self._ends: dict[int, int] = {}
        """When each of them surely still is ours until."""
        self.breaker = Breaker(chance)
        self._store = store.messages
        self._keyed = store.keyed
        self._clock = store.clock
        self._settler = settler
        self._observer = observer
        self._contact = contact
        self._decide = Decide(route, policies, observer, store.clock, lease=lease)
        self._deliver = Deliver(route, sink, store.clock, chance, observer)
        self._batch_size = batch_size
        self._lease = lease
        self._poll = poll
        self._held = InFlight() if held is None else held
        self._alarm = Alarm(store.clock)
        self._sends: dict[asyncio.Task[None], int] = {}
        """When each began, and in that order: what goes through them does not depend on chance."""
        self._deciding: deque[tuple[asyncio.Task[None], int]] = deque()
        """Claims that policies are asked about, while the next one is made; and their messages."""
        self._backlog = False
        self._oldest = 0
        """The earliest due of the last claim."""
        self._ahead = False
        self._not_before = 0
        """When the next claim is worth its cost."""
        self._lease_ends = 0
        """When the last claim's lease is over."""
        self._resting = False
        """Nothing was left that is due: there is nothing to claim until something is."""
        self._nearer = NEVER
        """The earliest of what was put since the last claim was begun."""
        self._stopping = False

    def wake(self, due: int) -> None:
        """Something on this route may be due at `due`, and can be claimed then."""
        if not self._resting:  # the claim that is under way may have come too early to see it
            self._nearer = min(due, self._nearer)
        elif self._alarm.set_for is None or due < self._alarm.set_for:
            self._alarm.ring()

    @property
    def lag(self) -> int:
        """Milliseconds that the oldest message waits for this worker alone; 0: it keeps up."""
        if not self._backlog or self.breaker.is_open:
            return 0
        return max(0, self._clock.now() - self._oldest)

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

    def trust(self) -> None:
        """The sink is there, as its check found."""
        if self.breaker.trust():
            self._alarm.ring()

    def extended(self, tokens: Sequence[int], until: int) -> None:
        """The store moved the end of these leases, if they were not over by then."""
        now = self._clock.now()
        for token in tokens:
            if now < self._ends.get(token, 0):
                self._ends[token] = until

    def stop(self) -> None:
        """Claim no more; what is in flight goes on."""
        self._stopping = True
        self._alarm.ring()

    async def run(self) -> None:
        while not self._stopping:
            await self._decided_to(DECIDING)
            await self._gather()
            free = min(self._batch_size, self.capacity - self.in_flight) if self._has_bytes else 0
            wanted = self.breaker.allowance(free, self._clock.now())
            if wanted <= 0:
                await self._alarm.wait(self.breaker.look_again() if free > 0 else None)
                continue
            claim = await self._claim(wanted)
            if claim is None:
                await self._clock.sleep_until(self._clock.now() + STORE_AWAY_MS)
                continue
            if isinstance(claim, Room):
                await self._alarm.wait(self._when_room(claim))
                continue
            if claim.messages:
                await self._begin(claim)
            if not self._backlog:
                self._resting = True
                await self._alarm.wait(self._next_look(claim))
                self._resting = False

    async def finish(self, deadline: int, *, leave: bool) -> None:
        """Wait for sends under way, then interrupt those that are not done by the deadline.

        A call in a thread cannot be interrupted: it is waited for, or left with its lease.
        """
        await self._ended_by(deadline)
        for task in tuple(self._sends):
            task.cancel()
        await self._ended_by(self._clock.now() + INTERRUPT_MS)
        if not self._sends:
            return
        log.warning(
            "%s: %d messages are in calls that cannot be interrupted: they stay leased and %s",
            self.route.name,
            self.in_flight,
            "go out again when that lease ends" if leave else "are waited for",
        )
        if not leave:
            await asyncio.gather(*self._sends, return_exceptions=True)

    async def _ended_by(self, deadline: int) -> None:
        while self._sends and self._clock.now() < deadline:
            await self._alarm.wait(deadline)

    async def _gather(self) -> None:
        if self._backlog:
            if self.in_flight > self.capacity * 3 // 4:
                await self._clock.sleep_until(self._clock.now() + GATHER_MS)
        elif is_ahead(self._not_before, self._clock.now(), SPACING_MS):
            await self._clock.sleep_until(self._not_before)

    async def _claim(self, wanted: int) -> Claim | Room | None:
        """What is due; a Room when a pace leaves none; None when the store is away."""
        try:
            await self._contact.ensure()
            room = await self._room(wanted)
            if room.number == 0:
                return room
            now = self._clock.now()
            self._nearer = NEVER
            with self._observer.asking("claim"):
                claim = await self._take(room.number, now)
        except StoreUnavailable as exc:
            log.warning("store away, %s waits: %s", self.route.name, exc)
            return None
        except PenstockError:
            log.exception("a claim for %s failed; it is repeated", self.route.name)
            return None
        self._contact.answered()
        claimed = len(claim.messages)
        self._backlog = claimed >= room.number or (claimed > 0 and claim.stopped_at_bytes)
        self._ahead = claim.next_due is not None and claim.next_due <= now
        self._lease_ends = now + self._lease
        self._not_before = now + min(len(claim.messages) // PER_MS, SPACING_MS)
        return claim

    async def _room(self, wanted: int) -> Room:
        """How many may be claimed, whatever becomes of those that are not decided yet."""
        undecided = sum(number for _, number in self._deciding)
        room = await self._decide.room(wanted + undecided)
        if undecided and room.number < wanted + undecided:
            await self._decided_to(0)
            room = await self._decide.room(wanted)
        return room if room.number <= wanted else Room(wanted)

    async def _take(self, number: int, now: int) -> Claim:
        name, per_key = self.route.name, self.route.per_key
        room = self._held.room(self.bytes) or 1
        if per_key is None:
            return await self._store.claim(name, number, self._lease, now, room)
        assert self._keyed is not None, "wiring refuses such a route"  # noqa: S101 - for the type
        return await self._keyed.claim_keyed(name, number, self._lease, now, per_key, room)

    def _when_room(self, room: Room) -> int:
        """When the pace has room again; sooner too, since the pace may be changed or dropped."""
        now = self._clock.now()
        again = now + REFRESH_MS if room.again_at is None else room.again_at
        return now + AHEAD_MS if again <= now else min(again, now + REFRESH_MS)

    def _next_look(self, claim: Claim) -> int:
        now = self._clock.now()
        if self._ahead:
            return min(now + min(self._poll, AHEAD_MS), self._nearer)
        due = NEVER if claim.next_due is None else claim.next_due
        return min(now + self._poll, due, self._nearer)

    async def _begin(self, claim: Claim) -> None:
        """Decide and send. With more to come the next claim need not wait for what policies say of
        this one; but what was claimed first is asked about first and sent first."""
        self.in_flight += len(claim.messages)
        self._hold(total_size(claim.messages))
        self._oldest = min(message.due for message in claim.messages)
        self.tokens[claim.token] += len(claim.messages)
        self._ends[claim.token] = self._lease_ends
        if len(claim.messages) > 1 and not self.breaker.lets_all_pass:
            claim = self._only_probe(claim)
        await self._decided_to(DECIDING - 1)
        before = self._deciding[-1][0] if self._deciding else None
        going = self._go(claim, before)
        if not (self._backlog and self._decide.asks and self.breaker.lets_all_pass):
            await going
            return
        task = asyncio.get_running_loop().create_task(going)
        self._deciding.append((task, len(claim.messages)))
        self._sends[task] = self._clock.now()
        task.add_done_callback(self._send_ended)

    def _only_probe(self, claim: Claim) -> Claim:
        """One of them is sent to see whether the sink answers; the others go back unsent."""
        chosen = probe_of(claim.messages)
        others = [message for message in claim.messages if message is not chosen]
        self._settler.add(_returned(others, claim.token), self._settled)
        return Claim(claim.token, (chosen,), claim.next_due)

    @property
    def _has_bytes(self) -> bool:
        """Whether another claim fits beside what this process holds; one message always does."""
        if not self.in_flight or self._held.room(self.bytes):
            return True
        self._held.tell(self._alarm)
        return False

    def _hold(self, number: int) -> None:
        """So many bytes more, or fewer."""
        self.bytes += number
        (self._held.add if number >= 0 else self._held.remove)(abs(number))

    async def _decided_to(self, number: int) -> None:
        """Wait until at most so many claims are not decided; those that are go off the list."""
        while self._deciding and (len(self._deciding) > number or self._deciding[0][0].done()):
            task, _ = self._deciding[0]
            await task
            self._deciding.popleft()

    async def _go(self, claim: Claim, before: asyncio.Task[None] | None = None) -> None:
        """`before`: the claim whose messages go first."""
        name = self.route.name
        ready, refused, allowed = await self._decided(claim)
        if before is not None:
            await asyncio.wait([before])
        now = self._clock.now()
        self._settler.add(refused, self._settled)
        self._observer.count("released", name, len(ready))
        self._observer.late(name, [now - message.due for message in ready])
        probe = self.breaker.began() if ready else 0
        for batch in self._deliver.batches(ready):
            task = asyncio.get_running_loop().create_task(
                self._send(batch, claim.token, allowed, probe)
            )
            self._sends[task] = now
            task.add_done_callback(self._send_ended)

    async def _send(
        self, batch: Sequence[Message], token: int, allowed: Mapping[str, str], probe: int
    ) -> None:
        if self._entries is not None and not self._observer.traces:
            self._add_entries(self._entries, batch, token, allowed)
            self.breaker.record((), self._clock.now(), probe)
            return
        await self._send_first(batch, token, allowed, probe)

    def _add_entries(
        self, sink: EntrySink, batch: Sequence[Message], token: int, allowed: Mapping[str, str]
    ) -> None:
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
        self._settler.add(settlements, self._added)

    def _added(self, settlements: Sequence[Settlement], states: SettledStates) -> None:
        """Those that their stream did not take go the ordinary way, which tells why."""
        pairs = list(zip(settlements, states, strict=True))
        if refused := [one for one, state in pairs if state is State.LEASED]:
            again = self._send_first(
                [one.message for one in refused],
                refused[0].token,
                {one.message.id: one.allowed for one in refused if one.allowed is not None},
                0,
            )
            task = asyncio.get_running_loop().create_task(again)
            self._sends[task] = self._clock.now()
            task.add_done_callback(self._send_ended)
        if settled := [pair for pair in pairs if pair[1] is not State.LEASED]:
            self._settled([one for one, _ in settled], [state for _, state in settled])

    async def _send_first(
        self, batch: Sequence[Message], token: int, allowed: Mapping[str, str], probe: int
    ) -> None:
        """Send by the sink, and settle what came of it afterwards."""
        if not self._may_send.is_set():
            await self._until_settled(batch, token)
        if self._holds(token):
            finish = self._sent if probe == 0 else partial(self._sent, probe=probe)
            await self._deliver.send(batch, token, finish, allowed, partial(self._holds, token))
            return
        # The store answered so late, or we were stopped for so long, that another may have sent
        # these: ours would be a second send, and with the lower attempt. Not begun, so given back.
        self.breaker.not_sent(probe)
        self._settler.add(_returned(batch, token), self._settled)

    def _holds(self, token: int) -> bool:
        """Whether nobody else can have got its messages by now."""
        return self._clock.now() < self._ends.get(token, 0)

    async def _until_settled(self, batch: Sequence[Message], token: int) -> None:
        """Wait until few enough messages of this lane are sent and not settled."""
        try:
            while not self._may_send.is_set():
                await self._may_send.wait()
        except asyncio.CancelledError:
            self._settler.add(_returned(batch, token), self._settled)
            raise

    async def _decided(self, claim: Claim) -> Ruling:
        try:
            return await self._decide.decide(claim)
        except PenstockError as exc:
            log.warning("%s is not decided and given back: %s", self.route.name, exc)
            return Ruling([], _returned(claim.messages, claim.token), {})

    def _send_ended(self, task: asyncio.Task[None]) -> None:
        self._sends.pop(task, None)
        failed = not task.cancelled() and task.exception() is not None
        if (self._stopping and not self._sends) or (
            failed and any(task is deciding for deciding, _ in self._deciding)
        ):
            self._alarm.ring()

    def _sent(
        self, settlements: list[Settlement], outcomes: Sequence[SendOutcome], probe: int = 0
    ) -> None:
        was_open = self.breaker.is_open
        self.breaker.record(outcomes, self._clock.now(), probe)
        if self.breaker.is_open != was_open:
            self._tell_breaker()
        tell_failures(self.route.name, settlements, outcomes)
        self._unsettled += len(settlements)
        if self._unsettled >= self._settle_ahead:
            self._may_send.clear()
        self._settler.add(settlements, self._settled_sent)

    def _tell_breaker(self) -> None:
        if self.breaker.is_open:
            log.warning(
                "%s does not answer: messages of %s wait in the store until it does",
                self.sink.name,
                self.route.name,
            )
        else:
            log.info("%s answers again: %s goes on", self.sink.name, self.route.name)

    def _settled_sent(self, settlements: Sequence[Settlement], states: SettledStates) -> None:
        self._unsettled -= len(settlements)
        if self._unsettled < self._settle_ahead:
            self._may_send.set()
        self._settled(settlements, states)

    def _settled(self, settlements: Sequence[Settlement], states: SettledStates) -> None:
        events = Counter(
            "stale" if state is None else settlement.event
            for settlement, state in zip(settlements, states, strict=True)
        )
        for event, number in events.items():
            self._observer.count(event, self.route.name, number)
        if events["stale"]:
            log.warning(
                "%d messages of %s were settled after their lease had ended: they may go out twice",
                events["stale"],
                self.route.name,
            )
        token = settlements[0].token
        self.tokens[token] -= len(settlements)
        if self.tokens[token] <= 0:
            del self.tokens[token], self._ends[token]
        self.in_flight -= len(settlements)
        size = total_size([settlement.message for settlement in settlements])
        self._hold(-size if self.in_flight else -self.bytes)
        waits_for_room = self._alarm.is_waiting and not self._resting
        if waits_for_room or self.route.per_key is not None or _puts_back(settlements):
            self._alarm.ring()


def _beside(entries: EntryStore | None, sink: Sink) -> EntrySink | None:
    """The sink, if its stream is on the store's own server."""
    if entries is not None and isinstance(sink, EntrySink) and entries.is_at(sink.place):
        return sink
    return None


def _most_ahead(sink: Sink) -> int:
    """What the sink itself says is the most that may be sent and not settled."""
    most: int = getattr(sink, "settle_ahead", sink.max_batch)
    return max(most, FEW)


def _puts_back(settlements: Sequence[Settlement]) -> bool:
    """Whether there may be something to claim sooner than was known."""
    return any(settlement.state is State.SCHEDULED for settlement in settlements)


def _returned(messages: Sequence[Message], token: int) -> list[Settlement]:
    """Back into the store as they were: no send was begun."""
    return [
        Settlement(
            message=message,
            token=token,
            state=State.SCHEDULED,
            due=message.due,
            event="returned",
            refund=True,
        )
        for message in messages
    ]
