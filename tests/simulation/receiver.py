"""Who receives the messages, in any mood, and the sinks through which processes send to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from tests.simulation.clocks import ServerClock
from tests.simulation.journal import Journal
from tests.simulation.loop import Owner, VirtualLoop
from tests.simulation.plan import Route

TIMEOUT = 2.0
"""Seconds a send waits for an answer."""
_REFUSED = Dead("refused for good")


@dataclass(slots=True)
class Send:
    """One message handed to a sink once."""

    message: Message
    who: str
    began: int
    """Of the world's time, as everything here."""
    began_server: int
    order: int
    """Among all sends of the run, whichever route they take."""
    arrived: int | None = None
    arrived_server: int = 0
    outcome: SendOutcome | None = None
    ended: int | None = None
    by_network: bool = False
    """The network repeated it, nobody of ours did."""
    parted: bool = False
    """The sink raised for a batch of several: they go again in parts, in the same attempt."""


@dataclass(slots=True)
class Receiver:
    """The other end of one route."""

    route: Route
    loop: VirtualLoop
    clock: ServerClock
    journal: Journal
    chance: random.Random
    lease: int
    mood: str = ""
    stays: bool = False
    """It is never in another mood any more."""
    moody: bool = False
    """It was in a mood at some time."""
    sends: list[Send] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)
    """Life of a process → messages it has on the way here."""

    def feel(self, mood: str, *, for_ever: bool = False) -> None:
        if not self.stays:
            self.mood, self.stays = mood, for_ever
            self.moody = self.moody or bool(mood)

    def begin(self, life: str, batch: Sequence[Message]) -> list[Send]:
        self.busy[life] = self.busy.get(life, 0) + len(batch)
        if self.busy[life] > self.route.capacity:
            told = f"{self.busy[life]} of {self.route.capacity} in flight in {life}"
            self.journal.fail("1.6 claims are bounded by capacity", batch[0].id, told)
        order = len(self.journal.lines)
        begun = [Send(m, life, self.clock.elapsed(), self.clock.now(), order) for m in batch]
        self.sends += begun
        for send in begun:
            self.journal.note(life, "send", send.message.id, f"attempt {send.message.attempt}")
        return begun

    def end(self, life: str, sends: Sequence[Send], outcomes: Sequence[SendOutcome]) -> None:
        self.busy[life] -= len(sends)
        for send, outcome in zip(sends, outcomes, strict=True):
            send.outcome, send.ended = outcome, self.clock.elapsed()
            self.journal.note(life, "sent", send.message.id, type(outcome).__name__)

    def accept(self, send: Send) -> None:
        send.arrived, send.arrived_server = self.clock.elapsed(), self.clock.now()
        self.journal.note(self.route.name, "arrives", send.message.id, f"from {send.who}")

    def repeat(self, send: Send) -> None:
        again = replace(send, by_network=True)
        self.sends.append(again)
        self.accept(again)

    def answer(self, send: Send) -> tuple[bool, SendOutcome | None]:
        """Does it arrive, and what is said; None: nothing is."""
        mood = self.mood
        if mood == "mixed":
            mood = self.chance.choice(("", "", "timeout", "refuse", "busy", "accept_lost", "twice"))
        match mood:
            case "timeout":
                return False, None
            case "accept_lost":
                return True, None
            case "refuse":
                return False, _REFUSED
            case "busy":
                return False, Retry("429", after=self.chance.choice((0.2, 1.0, 3.0)))
            case "gone":
                return False, Retry("connection refused", unreachable=True, unsure=False)
            case "twice":
                self.repeat(send)
        return True, DELIVERED


class SimSink:
    """A Sink of one life of a process."""

    def __init__(self, receiver: Receiver, life: str, owner: Owner) -> None:
        self._receiver = receiver
        self._life = life
        self._owner = owner
        self.name = f"sim://{receiver.route.name}"
        self.max_batch = receiver.route.batch
        self.concurrency = 4

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if self._owner.dead:
            raise asyncio.CancelledError
        to = self._receiver
        sends = to.begin(self._life, batch)
        outcomes: list[SendOutcome] = []
        try:
            await self._travel()
            if to.mood == "hang":
                await asyncio.get_running_loop().create_future()
            if to.mood == "raise":
                raise OSError("broken pipe")  # noqa: TRY301 - what a driver may do
            outcomes = await self._deliver(sends)
            await self._travel()
        except BaseException as exc:
            for send in sends:
                send.parted = isinstance(exc, Exception) and len(sends) > 1
            if not self._owner.dead:
                to.end(self._life, sends, [Retry("broken off")] * len(sends))
            raise
        to.end(self._life, sends, outcomes)
        return outcomes

    async def check(self) -> None:
        """Somebody is there, in whatever mood."""

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def _travel(self) -> None:
        to = self._receiver
        delay: float = to.chance.randint(0, to.route.delay) if to.route.delay else 0
        if to.route.slow and to.chance.random() * 100 < to.route.slow:
            delay = 1.4 * to.lease
        await asyncio.sleep(delay / 1000)

    async def _deliver(self, sends: Sequence[Send]) -> list[SendOutcome]:
        to = self._receiver
        outcomes: list[SendOutcome] = []
        silent = False
        for send in sends:
            arrives, outcome = to.answer(send)
            if arrives:
                to.accept(send)
            silent = silent or outcome is None
            outcomes.append(outcome or Retry("no answer in time", unsure=True))
        if silent:
            await asyncio.sleep(TIMEOUT)
        return outcomes
